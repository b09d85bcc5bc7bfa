#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_affine4z_g32_s8() { return launchers<Affine4S8<32, Offset::zero_point>>(); }
}  // namespace specquant::cuda
