#include "cuda/results.h"

#include <cuda_runtime.h>

namespace specquant::cuda {
namespace {

constexpr int kBlock = 256;

// Higher logit first, then lower id.
__device__ bool before(const TopEntry& a, const TopEntry& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}
__device__ TopEntry nobody() { return {0x7fffffff, -INFINITY}; }

// The first of all threads' entries in the order of `before`.
__device__ TopEntry first_of_block(TopEntry mine, TopEntry* shared) {
  for (int step = 16; step > 0; step /= 2) {
    const TopEntry other{__shfl_xor_sync(~0U, mine.token, step),
                         __shfl_xor_sync(~0U, mine.logit, step)};
    if (before(other, mine)) mine = other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = shared[0];
  for (int i = 1; i < kBlock / 32; ++i) {
    if (before(shared[i], mine)) mine = shared[i];
  }
  return mine;
}

// The k best of entry(0) ... entry(count - 1), one after the other: each is the best behind the
// last.
template <class Entry>
__device__ void pick(int count, int k, Entry entry, TopEntry* out, TopEntry* shared) {
  TopEntry last{-1, INFINITY};
  for (int i = 0; i < k; ++i) {
    TopEntry best = nobody();
    for (int j = static_cast<int>(threadIdx.x); j < count; j += kBlock) {
      const TopEntry candidate = entry(j);
      if (before(last, candidate) && before(candidate, best)) best = candidate;
    }
    last = first_of_block(best, shared);
    if (threadIdx.x == 0) out[i] = last;
  }
}

__global__ void search_chunks(const float* logits, int vocabulary, int k, TopEntry* entries,
                              LogitSum* sums) {
  __shared__ TopEntry shared[kBlock / 32];
  __shared__ float totals[kBlock / 32];
  const int begin = static_cast<int>(static_cast<int64_t>(vocabulary) * blockIdx.x / kLogitChunks);
  const int end =
      static_cast<int>(static_cast<int64_t>(vocabulary) * (blockIdx.x + 1) / kLogitChunks);
  const float* row = logits + static_cast<size_t>(blockIdx.y) * vocabulary;
  const size_t place = static_cast<size_t>(blockIdx.y) * kLogitChunks + blockIdx.x;
  pick(
      end - begin, k,
      [&](int i) {
        return TopEntry{begin + i, row[begin + i]};
      },
      entries + place * k, shared);
  if (sums == nullptr) return;
  float largest = -INFINITY;
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kBlock)
    largest = fmaxf(largest, row[i]);
  largest = first_of_block({0, largest}, shared).logit;
  float total = 0.0F;
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kBlock)
    total += expf(row[i] - largest);
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(~0U, total, step);
  if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kBlock / 32; ++i) total += totals[i];
  sums[place] = {largest, total};
}

__global__ void merge_chunks(const TopEntry* entries, const LogitSum* sums, int k, TopEntry* top,
                             float* log_sums) {
  __shared__ TopEntry shared[kBlock / 32];
  const size_t row = blockIdx.x;
  const TopEntry* mine = entries + row * kLogitChunks * k;
  pick(
      kLogitChunks * k, k, [&](int i) { return mine[i]; }, top + row * k, shared);
  if (sums == nullptr || threadIdx.x != 0) return;
  const LogitSum* parts = sums + row * kLogitChunks;
  float largest = -INFINITY, total = 0.0F;
  for (int i = 0; i < kLogitChunks; ++i) largest = fmaxf(largest, parts[i].largest);
  for (int i = 0; i < kLogitChunks; ++i) {
    if (parts[i].total > 0.0F) total += parts[i].total * expf(parts[i].largest - largest);
  }
  log_sums[row] = largest + logf(total);
}

}  // namespace

int launch_results(const float* logits, int rows, int vocabulary, int k, TopEntry* entries,
                   LogitSum* sums, TopEntry* top, float* log_sums, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  search_chunks<<<dim3(kLogitChunks, static_cast<unsigned>(rows)), kBlock, 0, s>>>(
      logits, vocabulary, k, entries, sums);
  merge_chunks<<<static_cast<unsigned>(rows), kBlock, 0, s>>>(entries, sums, k, top, log_sums);
  return cudaGetLastError();
}

}  // namespace specquant::cuda
