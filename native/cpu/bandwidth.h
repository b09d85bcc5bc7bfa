// The read bandwidth of this machine, measured on the spot: the roofline of a memory-bound forward.
#pragma once

#include "cpu/threads.h"

namespace specquant::cpu {

// Bytes per second that the threads of `pool` read together from a buffer of 256 MiB, far larger
// than the caches: the median of five passes. Takes about 0.2 seconds.
double measure_read_bandwidth(ThreadPool& pool);

}  // namespace specquant::cpu
