#include "cuda/launchers.cuh"

namespace specquant::cuda {
// Only heads meet this pair: layers of 8-bit weights take 8-bit activations.
Launchers launchers_affine8_f16(Kernels kernels) {
  return {nullptr, head_launcher<Affine8F16>(kernels), narrow_rows<Affine8F16>(kernels)};
}
}  // namespace specquant::cuda
