#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_bf16() { return launchers<Float16<Act::bf16>>(); }
}  // namespace specquant::cuda
