// Sums over a row by one block of threads, in an order that nothing but the block's size decides.
#pragma once

namespace specquant::cuda {

constexpr int kRowThreads = 256;

// The sum of `mine` over the block's kRowThreads threads.
__device__ __forceinline__ float block_sum(float mine) {
  __shared__ float parts[kRowThreads / 32];
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(~0U, mine, step);
  __syncthreads();  // the parts of the sum before have been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  float sum = 0.0F;
  for (const float part : parts) sum += part;
  return sum;
}

// 1 / rms of value(0) ... value(count - 1).
template <class Value>
__device__ __forceinline__ float inverse_rms_of(int count, float epsilon, Value value) {
  float squares = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kRowThreads) {
    squares = fmaf(value(i), value(i), squares);
  }
  return 1.0F / sqrtf(block_sum(squares) / static_cast<float>(count) + epsilon);
}

}  // namespace specquant::cuda
