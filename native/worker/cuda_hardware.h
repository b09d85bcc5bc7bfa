// The NVIDIA GPU that CUDA lists first, as worker::Hardware.
#pragma once

#include "worker/hardware.h"

namespace specquant::worker {

// `threads` is the host's and not used. Throws std::invalid_argument that names what is missing:
// driver, GPU or architecture.
std::unique_ptr<Hardware> make_cuda_hardware(int threads);

}  // namespace specquant::worker
