#include "cuda/launchers.cuh"

namespace specquant::cuda {
Launchers launchers_f16() { return launchers<Float16<Act::f16>>(); }
}  // namespace specquant::cuda
