#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_f16(Kernels kernels) { return launchers<Float16<Act::f16>>(kernels); }
}  // namespace specquant::cuda
