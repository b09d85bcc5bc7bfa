// The end of a wide pass's qkv.
#pragma once

#include "cuda/epilogues.cuh"

namespace specquant::cuda {

// place_qkv, with what rotates a lane's values on its way together.
template <class SumsAt>
__device__ __forceinline__ void finish_qkv(const StepArgs& a, int layer, SumsAt sums_at, int tile,
                                           int t, const StepRow* rows, const float* rms) {
  const int lane = static_cast<int>(threadIdx.x) % 32, first = t * 8 + lane % 4 * 2;
  const int pair = (tile * kTileRows % a.head_dim + lane / 4) / 2;
  float2 by[2][2];  // [token][dimension and + 8]
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int position = rows[min(first + i / 2, a.rows - 1)].position;
    by[i / 2][i % 2] =
        __ldg(a.rotary + static_cast<size_t>(position) * (a.head_dim / 2) + pair + i % 2 * 4);
  }
  place_qkv(a, layer, sums_at(0), tile, t, rows, rms, [&](int token, int of) {
    const bool upper = of == pair;
    return token == first ? (upper ? by[0][0] : by[0][1]) : (upper ? by[1][0] : by[1][1]);
  });
}

}  // namespace specquant::cuda
