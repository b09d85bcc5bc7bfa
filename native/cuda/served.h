// What the kernels can run, checked before anything is placed on the device.
#pragma once

#include <string>

#include "core/packed_file.h"
#include "decode/device.h"

namespace specquant::cuda {

// Throw core::Error of type `model` that names what has no kernel. `blocks` is the number of the
// GPU's multiprocessors.
void check_served(const std::string& name, const ModelShape& shape, int blocks);
void check_served(const core::PackedFile& file, int blocks);

}  // namespace specquant::cuda
