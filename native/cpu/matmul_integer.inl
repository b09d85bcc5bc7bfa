// Affine weights by integer activations: exact 32-bit sums over an activation group, then two
// fused multiply-adds a group, in column order.
#pragma once

#include <cstring>

#include "cpu/kernels.h"
#include "cpu/row_block.inl"
#include "cpu/simd.h"

namespace specquant::cpu::SPECQUANT_ISA {

// 8-bit activations in groups of `columns`: one sum.
template <class Dot, int columns = kActivationGroup>
struct ByteSums {
  static constexpr int kColumns = columns;
  static constexpr std::size_t kQuadBytes = 4;
  Dot dot = Dot::zero();

  SPECQUANT_INLINE void add(Bytes64 weights, const std::byte* quad) {
    int32_t x;
    std::memcpy(&x, quad, 4);
    dot.add(weights, x);
  }
  SPECQUANT_INLINE Vec16i total() const { return dot.total(); }
};

// 16-bit activations, 256·hi + lo: two sums. The total is below 15·32639·32 < 2^24 for 4-bit
// weights, so that its conversion to f32 is exact.
template <class Dot>
struct HalfSums {
  static constexpr int kColumns = kActivationGroup;
  static constexpr std::size_t kQuadBytes = 8;
  Dot high = Dot::zero(), low = Dot::zero();

  SPECQUANT_INLINE void add(Bytes64 weights, const std::byte* quad) {
    int32_t x_high, x_low;
    std::memcpy(&x_high, quad, 4);
    std::memcpy(&x_low, quad + 4, 4);
    high.add(weights, x_high);
    low.add(weights, x_low);
  }
  SPECQUANT_INLINE Vec16i total() const { return shift_left<8>(high.total()) + low.total(); }
};

struct Affine4 {
  using Dot = Dot4;
  static constexpr bool kOffset = true;  // w = s·q + m
  // m of 16 rows, from the group's scales s and where they lie.
  SPECQUANT_INLINE static Vec16f offset(Vec16f, const std::byte* scales) {
    return Vec16f::load_f16(scales + 32);
  }
  static constexpr std::size_t kColumnBytes = kTileRows / 2;
  static constexpr std::size_t kScaleBytes = 64;

  // Sums of one activation group for `count` rows; `quad` is the group's first quad of the first
  // row.
  template <int count, class Sums>
  SPECQUANT_INLINE static void add_group(const std::byte* weights, const std::byte* quad,
                                         std::size_t stride, std::ptrdiff_t ahead,
                                         Sums (&sums)[count]) {
    for (int chunk = 0; chunk < Sums::kColumns / 8; ++chunk) {
      prefetch<(count >= kPrefetchRows)>(weights + 64 * chunk + ahead);
      const Bytes64 both = Bytes64::load(weights + 64 * chunk);
      const Bytes64 low = both.low_nibbles();
      for (int r = 0; r < count; ++r) sums[r].add(low, quad + Sums::kQuadBytes * r);
      quad += stride;
      const Bytes64 high = both.high_nibbles();
      for (int r = 0; r < count; ++r) sums[r].add(high, quad + Sums::kQuadBytes * r);
      quad += stride;
    }
  }
};

// w = s·(q - z): m = s·(-z), which is exact in f32.
struct Affine4Zero : Affine4 {
  SPECQUANT_INLINE static Vec16f offset(Vec16f scale, const std::byte* scales) {
    return scale * Vec16f::load_f16(scales + 32);
  }
};

struct Affine8 {
  using Dot = Dot8;
  static constexpr bool kOffset = false;  // w = s·(q - 128)
  static constexpr std::size_t kColumnBytes = kTileRows;
  static constexpr std::size_t kScaleBytes = 32;

  template <int count, class Sums>
  SPECQUANT_INLINE static void add_group(const std::byte* weights, const std::byte* quad,
                                         std::size_t stride, std::ptrdiff_t ahead,
                                         Sums (&sums)[count]) {
    for (int chunk = 0; chunk < Sums::kColumns / 4; ++chunk) {
      prefetch<(count >= kPrefetchRows)>(weights + 64 * chunk + ahead);
      const Bytes64 codes = Bytes64::load(weights + 64 * chunk);
      for (int r = 0; r < count; ++r) sums[r].add(codes, quad + Sums::kQuadBytes * r);
      quad += stride;
    }
  }
};

// The exact sum of a group: for affine8 the offset is taken off as an integer.
template <class Weights, class Sums>
SPECQUANT_INLINE Vec16i exact_sum(const Sums& sums, int32_t integer_sum) {
  if constexpr (Weights::kOffset) return sums.total();
  return sums.total() - Vec16i::broadcast(128 * integer_sum);
}

// `count` rows from `first` on, of one tile; weights `ahead` bytes on are prefetched. The order of
// operations on a row does not depend on `count`.
template <class Weights, class Sums, int count>
void multiply_integers(const Matrix& matrix, const std::byte* tile, const RowBlock& x, int first,
                       std::ptrdiff_t ahead, const Output& out) {
  const std::size_t stride = Sums::kQuadBytes * x.rows;
  const std::byte* quad = x.data + Sums::kQuadBytes * first;
  const int parts = matrix.group / Sums::kColumns;
  constexpr std::size_t kGroupBytes = Weights::kColumnBytes * Sums::kColumns;
  int at = first;  // [group][row]
  Vec16f y[count];
  for (int r = 0; r < count; ++r) y[r] = Vec16f::zero();
  for (int column = 0; column < matrix.cols; column += matrix.group) {
    const std::byte* scales = tile + kGroupBytes * parts;
    prefetch<(count >= kPrefetchRows)>(scales + ahead);
    const Vec16f scale = Vec16f::load_f16(scales);
    for (int part = 0; part < parts; ++part) {
      Sums sums[count];
      Weights::template add_group<count>(tile, quad, stride, ahead, sums);
      for (int r = 0; r < count; ++r) {
        const Vec16i total = exact_sum<Weights>(sums[r], x.integer_sum[at + r]);
        y[r] = fma(to_float(total), scale * Vec16f::broadcast(x.scale[at + r]), y[r]);
      }
      if constexpr (Weights::kOffset) {
        const Vec16f offset = Weights::offset(scale, scales);
        for (int r = 0; r < count; ++r) {
          y[r] = fma(offset, Vec16f::broadcast(x.scaled_sum[at + r]), y[r]);
        }
      }
      tile += kGroupBytes;
      quad += stride * (Sums::kColumns / 4);
      at += x.rows;
    }
    tile += Weights::kScaleBytes;
  }
  for (int r = 0; r < count; ++r) out.put(first + r, y[r]);
}

}  // namespace specquant::cpu::SPECQUANT_ISA
