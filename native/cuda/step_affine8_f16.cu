#include "cuda/launchers.cuh"

namespace specquant::cuda {
// Only heads meet this pair: layers of 8-bit weights take 8-bit activations.
Launchers launchers_affine8_f16() { return {nullptr, launch_head<Affine8F16>}; }
}  // namespace specquant::cuda
