// The processor as the worker's device.
#pragma once

#include "worker/hardware.h"

namespace specquant::worker {

std::unique_ptr<Hardware> make_cpu_hardware(int threads);

}  // namespace specquant::worker
