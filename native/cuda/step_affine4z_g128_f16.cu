#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine4z_g128_f16(Kernels kernels) {
  return launchers<Affine4F16<128, Offset::zero_point>>(kernels);
}
}  // namespace specquant::cuda
