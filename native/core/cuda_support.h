// What CUDA tells of a machine, judged: whether it can run what nvcc compiled, and what it lacks.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace specquant::core {

// What keeps CUDA code of runtime version `runtime` from running under a driver that serves
// `driver` (both as CUDA counts them: 13020 is 13.2; a driver of 0 is none), as a sentence; ""
// where nothing does. A driver of the same major version is enough for machine code.
std::string driver_problem(int driver, int runtime);

// What to say of a GPU, of compute capability `major`.`minor`, that runs none of the
// `architectures` compiled for (90 is sm_90).
std::string architecture_problem(const std::string& gpu, int major, int minor,
                                 std::span<const int> architectures);

// What to say where the GPU did not give `bytes` more for `what`, with `free` of its `total` bytes
// left.
std::string memory_problem(const std::string& what, std::size_t bytes, std::size_t free,
                           std::size_t total);

}  // namespace specquant::core
