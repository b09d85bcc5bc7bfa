// The matrix product: tiles outermost, so that a tile stays in the first-level cache for all rows.
#pragma once

#include "cpu/kernels.h"
#include "cpu/matmul_float.inl"
#include "cpu/matmul_integer.inl"
#include "cpu/row_block.inl"
#include "cpu/simd.h"

namespace specquant::cpu::SPECQUANT_ISA {

// The largest number of rows that share a pass over a tile: as many as the registers hold. On
// AVX-512 twelve rows fit as well, but measure no better than two passes of six.
#if defined(SPECQUANT_SIMD_AVX512)
constexpr int kByteRows = 8, kHalfRows = 8, kFloatRows = 8;
#elif defined(SPECQUANT_SIMD_AVX2)
constexpr int kByteRows = 4, kHalfRows = 2, kFloatRows = 2;
#else
constexpr int kByteRows = 4, kHalfRows = 4, kFloatRows = 4;
#endif

// How far ahead the first pass over a tile asks for weights.
constexpr std::ptrdiff_t kPrefetchBytes = 8192;

// Calls function.template operator()<n>() for a run-time n in 1..most.
template <int most, class Function>
SPECQUANT_INLINE void with_count(int n, const Function& function) {
  if (n == most) {
    function.template operator()<most>();
  } else if constexpr (most > 1) {
    with_count<most - 1>(n, function);
  }
}

// What a product reads and writes, without its kernel.
struct Product {
  const Matrix& weights;
  const PackedRows& x;
  int tile_begin, tile_end;
  float* y;
  std::size_t y_stride;
  bool accumulate;
};

// The block that holds packed row `first`, the first of its block.
inline RowBlock row_block(const PackedRows& x, int first, std::size_t bytes_per_value) {
  const std::size_t values = static_cast<std::size_t>(first) * static_cast<std::size_t>(x.cols);
  const std::size_t at = values / activation_group(x.kind);
  const int left = x.rows - first;
  return {left < kRowBlock ? left : kRowBlock, x.data.data() + values * bytes_per_value,
          x.scale.data() + at, x.scaled_sum.data() + at, x.integer_sum.data() + at};
}

// kernel.template operator()<count>(tile, block, first row, output) does `count` rows of a block.
template <int most, class Kernel>
inline void for_each_tile(const Product& p, std::size_t bytes_per_value, const Kernel& kernel) {
  const std::size_t tile_bytes = p.weights.tile_bytes();
  // The next tiles are this thread's own but at the end of its range, where they are its
  // neighbour's, who has read them by then.
  const int stream_tiles = p.weights.tile_count() + p.weights.tiles_behind;
  const std::byte* end = p.weights.tiles + tile_bytes * static_cast<std::size_t>(stream_tiles);
  for (int t = p.tile_begin; t < p.tile_end; ++t) {
    const std::byte* tile = p.weights.tiles + tile_bytes * static_cast<std::size_t>(t);
    const int rows_left = p.weights.rows - t * kTileRows;
    const int valid = rows_left < kTileRows ? rows_left : kTileRows;
    for (int row = 0; row < p.x.rows; row += kRowBlock) {
      const RowBlock block = row_block(p.x, row, bytes_per_value);
      const Output out{p.y + static_cast<std::size_t>(row) * p.y_stride + t * kTileRows, p.y_stride,
                       valid, p.accumulate};
      // Passes of nearly equal size: 13 rows are 7 and 6, not 12 and 1.
      int passes = (block.rows + most - 1) / most;
      for (int first = 0; first < block.rows; --passes) {
        const bool first_pass = row + first == 0;
        const std::ptrdiff_t ahead = first_pass && end - tile > kPrefetchBytes ? kPrefetchBytes : 0;
        const int count = (block.rows - first + passes - 1) / passes;
        with_count<most>(
            count, [&]<int n>() { kernel.template operator()<n>(tile, block, first, ahead, out); });
        first += count;
      }
    }
  }
}

template <class Weights>
inline void multiply_affine(const Product& p) {
  using Dot = typename Weights::Dot;
  if (p.x.kind == ActivationKind::i16) {
    for_each_tile<kHalfRows>(p, 2, [&]<int n>(const auto&... arguments) {
      multiply_integers<Weights, HalfSums<Dot>, n>(p.weights, arguments...);
    });
  } else if (p.x.kind == ActivationKind::u4g16) {
    for_each_tile<kByteRows>(p, 1, [&]<int n>(const auto&... arguments) {
      multiply_integers<Weights, ByteSums<Dot, 16>, n>(p.weights, arguments...);
    });
  } else {
    for_each_tile<kByteRows>(p, 1, [&]<int n>(const auto&... arguments) {
      multiply_integers<Weights, ByteSums<Dot>, n>(p.weights, arguments...);
    });
  }
}

template <bool native_bf16>
void matmul(const Matrix& weights, const PackedRows& x, int tile_begin, int tile_end, float* y,
            std::size_t y_stride, bool accumulate) {
  check_matmul(weights, x, tile_begin, tile_end);
  const Product p{weights, x, tile_begin, tile_end, y, y_stride, accumulate};
  switch (weights.kind) {
    case WeightKind::affine4:
      return multiply_affine<Affine4>(p);
    case WeightKind::affine4z:
      return multiply_affine<Affine4Zero>(p);
    case WeightKind::affine8:
      return multiply_affine<Affine8>(p);
    case WeightKind::f16:
      return for_each_tile<kFloatRows>(p, 4, [&]<int n>(const auto&... arguments) {
        multiply_floats<F16Weights, n>(weights, arguments...);
      });
    case WeightKind::bf16:
#if defined(SPECQUANT_SIMD_AVX512)
      if constexpr (native_bf16) {
        return for_each_tile<kFloatRows>(p, 2, [&]<int n>(const auto&... arguments) {
          multiply_native_bf16<n>(weights, arguments...);
        });
      }
#endif
      return for_each_tile<kFloatRows>(p, 4, [&]<int n>(const auto&... arguments) {
        multiply_floats<Bf16Weights, n>(weights, arguments...);
      });
  }
}

template <class Weights, class Sums>
inline void group_sums(const Matrix& weights, const PackedRows& packed, int tile_number, int row,
                       int32_t* out) {
  const std::byte* tile =
      weights.tiles + weights.tile_bytes() * static_cast<std::size_t>(tile_number);
  const RowBlock x = row_block(packed, row / kRowBlock * kRowBlock, Sums::kQuadBytes / 4);
  const std::size_t stride = Sums::kQuadBytes * x.rows;
  const std::byte* quad = x.data + Sums::kQuadBytes * (row % kRowBlock);
  const int parts = weights.group / Sums::kColumns;
  for (int group = 0; group < weights.cols / Sums::kColumns; ++group) {
    Sums sums[1];
    Weights::template add_group<1>(tile, quad, stride, 0, sums);
    const int32_t sum = x.integer_sum[group * x.rows + row % kRowBlock];
    exact_sum<Weights>(sums[0], sum).store(out + kTileRows * group);
    tile += Weights::kColumnBytes * Sums::kColumns;
    if ((group + 1) % parts == 0) tile += Weights::kScaleBytes;
    quad += stride * (Sums::kColumns / 4);
  }
}

template <class Weights>
inline void group_sums_of(const Matrix& weights, const PackedRows& x, int tile, int row,
                          int32_t* out) {
  using Dot = typename Weights::Dot;
  if (x.kind == ActivationKind::i16) {
    group_sums<Weights, HalfSums<Dot>>(weights, x, tile, row, out);
  } else if (x.kind == ActivationKind::u4g16) {
    group_sums<Weights, ByteSums<Dot, 16>>(weights, x, tile, row, out);
  } else {
    group_sums<Weights, ByteSums<Dot>>(weights, x, tile, row, out);
  }
}

inline void integer_accumulators(const Matrix& weights, const PackedRows& x, int tile, int row,
                                 int32_t* out) {
  check_matmul(weights, x, tile, tile + 1);
  if (is_affine4(weights.kind)) group_sums_of<Affine4>(weights, x, tile, row, out);
  if (weights.kind == WeightKind::affine8) group_sums_of<Affine8>(weights, x, tile, row, out);
}

}  // namespace specquant::cpu::SPECQUANT_ISA
