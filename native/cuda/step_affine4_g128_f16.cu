#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine4_g128_f16() { return launchers<Affine4F16<128, Offset::value>>(); }
}  // namespace specquant::cuda
