#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine4z_g32_s8(Kernels kernels) {
  return launchers<Affine4S8<32, Offset::zero_point>>(kernels);
}
}  // namespace specquant::cuda
