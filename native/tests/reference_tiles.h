// Random weights in the tile layout of docs/packed-format.md, beside their values in float64, and
// the inverse of PackedRows: what the packed activations stand for. Written from the documents, not
// from the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/half.h"
#include "cpu/kernels.h"

namespace specquant::cpu::reference {

struct Weights {
  Matrix matrix;
  std::vector<std::byte> bytes;
  std::vector<double> value;  // [row][column], padding rows included
  std::vector<int> integer;   // the code, less 128 for affine8
  double at(int row, int column) const {
    return value[static_cast<std::size_t>(row) * matrix.cols + column];
  }
  int code(int row, int column) const {
    return integer[static_cast<std::size_t>(row) * matrix.cols + column];
  }
};

inline void put_half(std::vector<std::byte>& bytes, std::size_t at, uint16_t half) {
  std::memcpy(bytes.data() + at, &half, 2);
}

// Values of a few hundredths, as in a language model.
inline Weights random_weights(WeightKind kind, int rows, int cols, int group,
                              std::mt19937& random) {
  std::uniform_real_distribution<float> scale_range(0.002F, 0.02F), offset_range(-0.2F, 0.1F);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  Weights w;
  w.matrix = {kind, rows, cols, group, nullptr};
  const int padded = w.matrix.tile_count() * kTileRows;
  w.bytes.resize(w.matrix.tile_bytes() * w.matrix.tile_count());
  w.value.resize(static_cast<std::size_t>(padded) * cols);
  w.integer.resize(w.value.size());
  for (int row = 0; row < rows; ++row) {
    const std::size_t tile = w.matrix.tile_bytes() * (row / kTileRows);
    const int r = row % kTileRows;
    for (int column = 0; column < cols; ++column) {
      double& value = w.value[static_cast<std::size_t>(row) * cols + column];
      int& integer = w.integer[static_cast<std::size_t>(row) * cols + column];
      if (kind == WeightKind::f16) {
        const uint16_t half = f16_from_float(normal(random));
        put_half(w.bytes, tile + 32 * column + 2 * r, half);
        value = float_from_f16(half);
        continue;
      }
      if (kind == WeightKind::bf16) {
        const uint16_t half = bf16_from_float(normal(random));
        put_half(w.bytes, tile + 64 * (column / 2) + 4 * r + 2 * (column % 2), half);
        value = float_from_bf16(half);
        continue;
      }
      const bool four = is_affine4(kind), zero = kind == WeightKind::affine4z;
      const std::size_t codes = static_cast<std::size_t>(group) * (four ? 8 : 16);
      const std::size_t start = tile + (codes + (four ? 64 : 32)) * (column / group);
      if (column % group == 0) {
        put_half(w.bytes, start + codes + 2 * r, f16_from_float(scale_range(random)));
        if (four) {
          const float second = zero ? -static_cast<float>(random() % 17) : offset_range(random);
          put_half(w.bytes, start + codes + 32 + 2 * r, f16_from_float(second));
        }
      }
      uint16_t scale, offset = 0;
      std::memcpy(&scale, w.bytes.data() + start + codes + 2 * r, 2);
      const int c = column % group;
      if (four) {
        std::memcpy(&offset, w.bytes.data() + start + codes + 32 + 2 * r, 2);
        integer = static_cast<int>(random() % 16);
        const std::size_t at = start + 64 * (c / 8) + 4 * r + c % 4;
        w.bytes[at] |= static_cast<std::byte>(c % 8 < 4 ? integer : integer << 4);
      } else {
        integer = static_cast<int>(random() % 256) - 128;
        w.bytes[start + 64 * (c / 4) + 4 * r + c % 4] = static_cast<std::byte>(integer + 128);
      }
      const double s = float_from_f16(scale), m = float_from_f16(offset);
      value = zero ? s * (integer + m) : s * integer + m;
    }
  }
  w.matrix.tiles = w.bytes.data();
  return w;
}

inline bool is_quantized(ActivationKind kind) {
  return kind != ActivationKind::f32 && kind != ActivationKind::bf16;
}

// Where a value of a block stands: bytes from the start of its block, for `width` bytes a unit of
// `columns` columns.
inline std::size_t position(const PackedRows& x, int row, int column, int columns, int width) {
  const int first = row / kRowBlock * kRowBlock;
  const int block_rows = std::min(kRowBlock, x.rows - first);
  const std::size_t block = static_cast<std::size_t>(first) * x.cols / columns * width;
  return block + (static_cast<std::size_t>(column / columns) * block_rows + (row - first)) * width;
}

inline int packed_integer(const PackedRows& x, int row, int column) {
  const auto signed_byte = [&](std::size_t at) {
    return static_cast<int>(static_cast<int8_t>(x.data[at]));
  };
  if (x.kind == ActivationKind::i16) {
    const std::size_t at = position(x, row, column, 4, 8) + column % 4;
    return 256 * signed_byte(at) + signed_byte(at + 4);
  }
  return signed_byte(position(x, row, column, 4, 4) + column % 4);
}

inline double packed_value(const PackedRows& x, int row, int column, bool native_bf16) {
  if (is_quantized(x.kind)) {
    const double scale = x.scale[x.index(row, column / activation_group(x.kind))];
    return scale * packed_integer(x, row, column);
  }
  if (x.kind == ActivationKind::bf16 && native_bf16) {
    uint16_t half;
    std::memcpy(&half, x.data.data() + position(x, row, column, 2, 4) + 2 * (column % 2), 2);
    return float_from_bf16(half);
  }
  float value;
  std::memcpy(&value, x.data.data() + position(x, row, column, 1, 4), 4);
  return value;
}

}  // namespace specquant::cpu::reference
