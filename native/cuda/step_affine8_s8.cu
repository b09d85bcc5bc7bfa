#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine8_s8(Kernels kernels) { return launchers<Affine8S8>(kernels); }
}  // namespace specquant::cuda
