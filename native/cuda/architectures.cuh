// Which GPUs a kernel is written for. Every file is compiled for each of them, and kernels of both
// kinds exist for the host in each build; which of them run, the host decides (device.cu).
#pragma once

#include "cuda/step.h"

namespace specquant::cuda {

// Whether the code that is being compiled is for GPUs of these kernels. In other code they have no
// body, and no launcher asks for them.
template <Kernels kKernels>
__host__ __device__ constexpr bool compiled_here() {
#ifdef __CUDA_ARCH__
  return (kKernels == Kernels::sm_90) == (__CUDA_ARCH__ >= 900);
#else
  return false;
#endif
}

}  // namespace specquant::cuda
