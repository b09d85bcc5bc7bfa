// What the kernels can run, checked before anything is placed on the device.
#pragma once

#include "cuda/model_origin.h"

namespace specquant::cuda {

// Throws core::Error that names what has no kernel, of type `model` or, for parts of a packed
// file's layers, `unsupported`. `blocks` is the number of the GPU's multiprocessors.
void check_served(const ModelOrigin& origin, int blocks);

}  // namespace specquant::cuda
