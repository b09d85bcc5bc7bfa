// What attention reads of the cache, on its way before the queries are there.
#pragma once

#include "cuda/ptx.cuh"
#include "cuda/step.h"

namespace specquant::cuda {

// Brings to L2 the first `entries` that a unit of attention reads (attention.cuh), whose rows are
// of the sequence of `row`: whole lines of them, by `threads`, of which this is number `thread`.
__device__ __forceinline__ void ask_for_entries(const StepArgs& a, int layer, int unit,
                                                const StepRow& row, int entries, int thread,
                                                int threads) {
  constexpr int kLine = 64;  // values of a cache line
  const size_t start =
      ((static_cast<size_t>(row.slot) * a.layers + layer) * a.kv_heads + unit % a.kv_heads) *
      a.max_positions * a.head_dim;
  const int key_lines = entries * a.head_dim / kLine, value_lines = (entries + kLine - 1) / kLine;
  for (int i = thread; i < key_lines; i += threads) {
    prefetch_l2(a.keys + start + static_cast<size_t>(i) * kLine);
  }
  for (int i = thread; i < value_lines * a.head_dim; i += threads) {
    prefetch_l2(a.values + start + static_cast<size_t>(i / value_lines) * a.max_positions +
                i % value_lines * kLine);
  }
}

}  // namespace specquant::cuda
