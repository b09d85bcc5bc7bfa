// 1 / rms of the rows of a wide pass.
#pragma once

#include "cuda/wide_memory.cuh"

namespace specquant::cuda {

constexpr int kRmsThreads = kProductThreads / kPassRows;  // of a row
static_assert(kRmsThreads == 8);

// The sums of inverse_rms (epilogues.cuh), in the same order, by the threads that multiply: a
// thread stands for four neighbouring lanes there, so that it asks for 16 bytes at a time and for a
// whole row of 4096 columns at once. Needs a barrier of these threads behind it.
__device__ __forceinline__ void wide_inverse_rms(const float* squares, int columns, float epsilon,
                                                 int rows, float* out) {
  const int row = static_cast<int>(threadIdx.x) / kRmsThreads;
  const int lanes = static_cast<int>(threadIdx.x) % kRmsThreads * 4;
  const int count = columns / kTileRows;
  const float* from = squares + static_cast<size_t>(min(row, rows - 1)) * count;
  float sum[4] = {};
  if (count % 4 == 0) {
#pragma unroll 8
    for (int i = lanes; i < count; i += 32) {
      const float4 four = __ldcg(reinterpret_cast<const float4*>(from + i));
      sum[0] += four.x;
      sum[1] += four.y;
      sum[2] += four.z;
      sum[3] += four.w;
    }
  } else {
    for (int i = lanes; i < count; i += 32) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i + j < count) sum[j] += __ldcg(from + i + j);
      }
    }
  }
#pragma unroll
  for (int step = kRmsThreads / 2; step > 0; step /= 2) {
#pragma unroll
    for (float& part : sum) part += __shfl_xor_sync(~0U, part, step);
  }
  const float whole = (sum[0] + sum[2]) + (sum[1] + sum[3]);
  if (lanes == 0) out[row] = 1.0F / sqrtf(whole / static_cast<float>(columns) + epsilon);
}

}  // namespace specquant::cuda
