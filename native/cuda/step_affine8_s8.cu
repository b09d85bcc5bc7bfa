#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine8_s8() { return launchers<Affine8S8>(); }
}  // namespace specquant::cuda
