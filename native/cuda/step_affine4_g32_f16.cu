#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine4_g32_f16(Kernels kernels) {
  return launchers<Affine4F16<32, Offset::value>>(kernels);
}
}  // namespace specquant::cuda
