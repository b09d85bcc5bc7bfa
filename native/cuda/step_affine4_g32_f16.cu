#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine4_g32_f16() { return launchers<Affine4F16<32, Offset::value>>(); }
}  // namespace specquant::cuda
