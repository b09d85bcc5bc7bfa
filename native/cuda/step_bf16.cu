#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_bf16(Kernels kernels) { return launchers<Float16<Act::bf16>>(kernels); }
}  // namespace specquant::cuda
