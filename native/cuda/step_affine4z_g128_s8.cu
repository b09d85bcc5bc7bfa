#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine4z_g128_s8(Kernels kernels) {
  return launchers<Affine4S8<128, Offset::zero_point>>(kernels);
}
}  // namespace specquant::cuda
