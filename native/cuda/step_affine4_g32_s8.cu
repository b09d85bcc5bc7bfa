#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine4_g32_s8(Kernels kernels) {
  return launchers<Affine4S8<32, Offset::value>>(kernels);
}
}  // namespace specquant::cuda
