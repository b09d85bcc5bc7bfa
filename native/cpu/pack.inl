// Packing of activation rows: rounding or quantization, then the layout of PackedRows.
#pragma once

#include <bit>
#include <cstring>
#include <limits>

#include "cpu/half.h"
#include "cpu/kernels.h"
#include "cpu/simd.h"

namespace specquant::cpu::SPECQUANT_ISA {

// One row inside its block.
struct PackedRow {
  std::byte* data;  // of the block
  int row;          // inside the block
  int block_rows;
  float* scale;  // of the block, as the two below
  float* scaled_sum;
  int32_t* integer_sum;
};

inline PackedRow packed_row(PackedRows& out, int row, std::size_t bytes_per_value) {
  const int first = row / kRowBlock * kRowBlock;
  const int left = out.rows - first;
  const std::size_t groups = static_cast<std::size_t>(out.cols) / activation_group(out.kind);
  const std::size_t values = static_cast<std::size_t>(first) * static_cast<std::size_t>(out.cols);
  const std::size_t skipped = static_cast<std::size_t>(first) * groups;
  return {out.data.data() + values * bytes_per_value,
          row - first,
          left < kRowBlock ? left : kRowBlock,
          out.scale.data() + skipped,
          out.scaled_sum.data() + skipped,
          out.integer_sum.data() + skipped};
}

constexpr float kSmallestNormal = std::numeric_limits<float>::min();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// The integers of a group (`second` only in groups of 32), and the scale that makes them values
// again.
struct Quantized {
  Vec16i first, second;
  float scale;
};

inline Quantized quantized_to(float scale) { return {Vec16i::zero(), Vec16i::zero(), scale}; }

// Greatest magnitude. Compared as integers, so that a NaN is greater than everything.
inline float greatest_magnitude(Vec16f first, Vec16f second) {
  const Vec16i bits = max(float_bits(abs(first)), float_bits(abs(second)));
  return std::bit_cast<float>(maximum(bits));
}

template <int largest>
inline Quantized quantize_symmetric(Vec16f first, Vec16f second) {
  const float scale = greatest_magnitude(first, second) / static_cast<float>(largest);
  if (scale < kSmallestNormal) return quantized_to(0.0F);
  if (!(scale <= kLargest)) return quantized_to(kNotANumber);
  const Vec16f inverse = Vec16f::broadcast(1.0F / scale);
  return {to_int(first * inverse), to_int(second * inverse), scale};
}

inline Quantized quantize_u4(Vec16f first, Vec16f second) {
  float low = minimum(min(first, second));
  float high = maximum(max(first, second));
  low = low < 0.0F ? low : 0.0F;
  high = high > 0.0F ? high : 0.0F;
  const float level = high / 15.0F - low / 15.0F;
  // The minimum and the maximum may have passed over a NaN.
  const float magnitude = greatest_magnitude(first, second);
  if (!(magnitude <= kLargest)) return quantized_to(kNotANumber);
  const float scale = level * 0.125F;
  if (scale < kSmallestNormal) return quantized_to(0.0F);
  const Vec16f inverse = Vec16f::broadcast(1.0F / level);
  const Vec16f zero = Vec16f::broadcast(0.0F);
  const Vec16f eighths = Vec16f::broadcast(-low * 8.0F) * inverse;
  const Vec16i offset = to_int(min(max(eighths, zero), Vec16f::broadcast(120.0F)));
  const Vec16f shift = to_float(offset) * Vec16f::broadcast(0.125F);
  const Vec16f top = Vec16f::broadcast(15.0F);
  const Vec16i code_first = to_int(min(max(fma(first, inverse, shift), zero), top));
  const Vec16i code_second = to_int(min(max(fma(second, inverse, shift), zero), top));
  return {shift_left<3>(code_first) - offset, shift_left<3>(code_second) - offset, scale};
}

// Writes 16 bytes as four quads, `stride` bytes apart.
inline void store_quads(Vec16i bytes, std::byte* to, std::size_t stride) {
  std::byte raw[16];
  store_bytes(bytes, raw);
  for (std::size_t quad = 0; quad < 4; ++quad) std::memcpy(to + quad * stride, raw + 4 * quad, 4);
}

template <ActivationKind kind>
inline void pack_quantized(const float* x, int column, int count, const PackedRow& out) {
  constexpr std::size_t width = kind == ActivationKind::i16 ? 8 : 4;  // bytes of a quad
  const std::size_t stride = width * out.block_rows;
  std::byte* to = out.data + static_cast<std::size_t>(column / 4) * stride + width * out.row;
  constexpr int columns = activation_group(kind);
  for (int group = column / columns; group < (column + count) / columns; ++group, x += columns) {
    const Vec16f first = Vec16f::load(x);
    Vec16f second = first;  // in a group of 16 it changes neither minimum nor maximum
    if constexpr (columns == 32) second = Vec16f::load(x + 16);
    Quantized q;
    if constexpr (kind == ActivationKind::u4 || kind == ActivationKind::u4g16) {
      q = quantize_u4(first, second);
    } else {
      q = quantize_symmetric < kind == ActivationKind::i8 ? 127 : 32639 > (first, second);
    }
    const int at = group * out.block_rows + out.row;
    const int32_t total = columns == 32 ? sum(q.first + q.second) : sum(q.first);
    out.scale[at] = q.scale;
    out.integer_sum[at] = total;
    out.scaled_sum[at] = q.scale * static_cast<float>(total);
    const Vec16i both[] = {q.first, q.second};
    for (int half = 0; half < columns / 16; ++half) {
      const Vec16i part = both[half];
      if constexpr (kind == ActivationKind::i16) {
        // The low byte counts as signed, so the high byte takes the carry.
        store_quads(shift_right<8>(part + Vec16i::broadcast(128)), to, stride);
        store_quads(part, to + 4, stride);
      } else {
        store_quads(part, to, stride);
      }
      to += 4 * stride;
    }
  }
}

inline Vec16i round_to_bf16(Vec16f x) {  // in the upper half of each lane
  const Vec16i bits = float_bits(x);
  const Vec16i odd = shift_right<16>(bits) & Vec16i::broadcast(1);
  const Vec16i rounded = bits + Vec16i::broadcast(0x7FFF) + odd;
  return rounded & Vec16i::broadcast(static_cast<int32_t>(0xFFFF0000U));
}

template <ActivationKind kind, bool native_bf16>
inline void pack_float(const float* x, int first, int count, const PackedRow& out) {
  for (int column = first; column < first + count; column += 16, x += 16) {
    Vec16f values = Vec16f::load(x);
    if constexpr (kind == ActivationKind::bf16) values = bits_float(round_to_bf16(values));
    if constexpr (kind == ActivationKind::bf16 && native_bf16) {
      uint16_t raw[16];
      store_halves(shift_right<16>(float_bits(values)), raw);
      for (int pair = 0; pair < 8; ++pair) {
        const std::size_t at =
            static_cast<std::size_t>(column / 2 + pair) * out.block_rows + out.row;
        std::memcpy(out.data + 4 * at, raw + 2 * pair, 4);
      }
    } else {
      float raw[16];
      values.store(raw);
      for (int i = 0; i < 16; ++i) {
        const std::size_t at = static_cast<std::size_t>(column + i) * out.block_rows + out.row;
        std::memcpy(out.data + 4 * at, raw + i, 4);
      }
    }
  }
}

template <bool native_bf16>
void pack_columns(const float* x, int row, int column, int count, PackedRows& out) {
  using Kind = ActivationKind;
  switch (out.kind) {
    case Kind::f32:
      pack_float<Kind::f32, native_bf16>(x, column, count, packed_row(out, row, 4));
      break;
    case Kind::bf16:
      pack_float<Kind::bf16, native_bf16>(x, column, count,
                                          packed_row(out, row, native_bf16 ? 2 : 4));
      break;
    case Kind::i16:
      pack_quantized<Kind::i16>(x, column, count, packed_row(out, row, 2));
      break;
    case Kind::i8:
      pack_quantized<Kind::i8>(x, column, count, packed_row(out, row, 1));
      break;
    case Kind::u4:
      pack_quantized<Kind::u4>(x, column, count, packed_row(out, row, 1));
      break;
    case Kind::u4g16:
      pack_quantized<Kind::u4g16>(x, column, count, packed_row(out, row, 1));
      break;
  }
}

template <bool native_bf16>
void pack(const float* x, std::size_t stride, int row_begin, int row_end, PackedRows& out) {
  for (int row = row_begin; row < row_end; ++row) {
    pack_columns<native_bf16>(x + stride * static_cast<std::size_t>(row), row, 0, out.cols, out);
  }
}

}  // namespace specquant::cpu::SPECQUANT_ISA
