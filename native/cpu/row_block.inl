// A block of packed rows, and where the results of one tile go.
#pragma once

#include "cpu/kernels.h"
#include "cpu/simd.h"

namespace specquant::cpu::SPECQUANT_ISA {

// Asks for a cache line, into the second level, where a pass has enough rows to be bound by
// arithmetic: that fills the reorder buffer, and without these requests memory waits for it. With
// fewer rows the hardware's prefetcher is faster alone. docs/kernels.md has the figures. An address
// past the end is harmless.
template <bool wanted>
SPECQUANT_INLINE void prefetch(const std::byte* p) {
  if constexpr (wanted) __builtin_prefetch(p, 0, 2);
}

#if defined(SPECQUANT_SIMD_AVX2)
constexpr int kPrefetchRows = 2;  // a pass has two to four rows
#else
constexpr int kPrefetchRows = 3;
#endif
constexpr int kNativeBf16PrefetchRows = 5;  // vdpbf16ps is fast enough to be bound by memory below

struct RowBlock {
  int rows;
  const std::byte* data;
  const float* scale;  // the three arrays: [group][row]
  const float* scaled_sum;
  const int32_t* integer_sum;
};

struct Output {
  float* y;  // of the block's first row and the tile's first output
  std::size_t stride;
  int valid;  // output rows of the tile that are not padding
  bool accumulate;

  SPECQUANT_INLINE void put(int row, Vec16f value) const {
    float* to = y + stride * static_cast<std::size_t>(row);
    if (valid == kTileRows) {
      if (accumulate) value = Vec16f::load(to) + value;
      value.store(to);
      return;
    }
    float lanes[kTileRows];
    value.store(lanes);
    for (int i = 0; i < valid; ++i) to[i] = accumulate ? to[i] + lanes[i] : lanes[i];
  }
};

}  // namespace specquant::cpu::SPECQUANT_ISA
