#include "cpu/model_tiles.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "cpu/half.h"

namespace specquant::cpu {
namespace {

constexpr std::size_t kF16Bytes = 2;

float half_at(const std::byte* bytes, int index) {
  uint16_t half = 0;
  std::memcpy(&half, bytes + static_cast<std::size_t>(index) * kF16Bytes, kF16Bytes);
  return float_from_f16(half);
}

// Codes, scales and offsets of `group` columns of one tile.
struct Group {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* offsets;  // 4-bit codes only: m, or -z of affine4z
};

Group group_of(const Matrix& matrix, int tile, int group) {
  const std::size_t width = static_cast<std::size_t>(matrix.group);
  const bool four = is_affine4(matrix.kind);
  const std::size_t code_bytes = four ? width * 8 : width * 16;
  const std::size_t scale_bytes = kTileRows * kF16Bytes;
  const std::size_t bytes = code_bytes + (four ? 2 * scale_bytes : scale_bytes);
  const std::byte* start = matrix.tiles + static_cast<std::size_t>(tile) * matrix.tile_bytes() +
                           static_cast<std::size_t>(group) * bytes;
  return {start, start + code_bytes, start + code_bytes + scale_bytes};
}

// The code of column `col` of a group, for one lane (row of the tile).
int affine4_code(const Group& group, int col, int lane) {
  const int packed = std::to_integer<int>(group.codes[(col / 8) * 64 + 4 * lane + col % 4]);
  return col % 8 < 4 ? packed & 15 : packed >> 4;
}
int affine8_code(const Group& group, int col, int lane) {
  return std::to_integer<int>(group.codes[(col / 4) * 64 + 4 * lane + col % 4]) - 128;
}

// A weight of kind f16 or bf16.
float float_value(const Matrix& matrix, int tile, int lane, int col) {
  const std::byte* start = matrix.tiles + static_cast<std::size_t>(tile) * matrix.tile_bytes();
  if (matrix.kind == WeightKind::f16) return half_at(start, col * kTileRows + lane);
  uint16_t raw = 0;
  const int index = col / 2 * 2 * kTileRows + 2 * lane + col % 2;
  std::memcpy(&raw, start + static_cast<std::size_t>(index) * sizeof raw, sizeof raw);
  return float_from_bf16(raw);
}

// m of a lane; none for affine8.
float offset_at(const Matrix& matrix, const Group& group, int lane) {
  if (!is_affine4(matrix.kind)) return 0.0F;
  const float stored = half_at(group.offsets, lane);
  return matrix.kind == WeightKind::affine4z ? half_at(group.scales, lane) * stored : stored;
}

constexpr int kStep = 32;  // columns converted at a time; every group is a multiple
using Columns = std::array<std::array<float, kTileRows>, kStep>;

// The values of kStep columns of one tile.
void read_columns(const Matrix& matrix, int tile, int first, Columns& out) {
  if (!is_affine(matrix.kind)) {
    for (int col = 0; col < kStep; ++col) {
      for (int lane = 0; lane < kTileRows; ++lane) {
        out[col][lane] = float_value(matrix, tile, lane, first + col);
      }
    }
    return;
  }
  const bool four = is_affine4(matrix.kind);
  const Group group = group_of(matrix, tile, first / matrix.group);
  std::array<float, kTileRows> scale, offset;
  for (int lane = 0; lane < kTileRows; ++lane) {
    scale[lane] = half_at(group.scales, lane);
    offset[lane] = offset_at(matrix, group, lane);
  }
  for (int col = 0; col < kStep; ++col) {
    for (int lane = 0; lane < kTileRows; ++lane) {
      const int code = four ? affine4_code(group, first % matrix.group + col, lane)
                            : affine8_code(group, first % matrix.group + col, lane);
      out[col][lane] = scale[lane] * static_cast<float>(code) + offset[lane];
    }
  }
}

// Writes one tile in the layout of `kind`, f16 or bf16. False where a value is too large for it.
bool convert_tile(const Matrix& from, int tile, WeightKind kind, uint16_t* out) {
  bool finite = true;
  Columns columns;
  for (int first = 0; first < from.cols; first += kStep) {
    read_columns(from, tile, first, columns);
    for (int col = 0; col < kStep; ++col) {
      for (int lane = 0; lane < kTileRows; ++lane) {
        const float value = columns[col][lane];
        if (kind == WeightKind::f16) {
          finite = finite && std::fabs(value) < 65520.0F;  // the next half above rounds to infinity
          out[(first + col) * kTileRows + lane] = f16_from_float(value);
        } else {
          out[(first + col) / 2 * 2 * kTileRows + 2 * lane + col % 2] = bf16_from_float(value);
        }
      }
    }
  }
  return finite;
}

// Copies one row between tiles of the same layout.
void copy_lane(const Matrix& layout, const std::byte* from, std::size_t from_lane, std::byte* to,
               std::size_t to_lane) {
  // `count` units of 16 lanes of `width` bytes.
  const auto copy = [&](std::size_t count, std::size_t width) {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(to + to_lane * width, from + from_lane * width, width);
      from += kTileRows * width;
      to += kTileRows * width;
    }
  };
  const auto cols = static_cast<std::size_t>(layout.cols);
  if (layout.kind == WeightKind::f16) return copy(cols, kF16Bytes);
  if (layout.kind == WeightKind::bf16) return copy(cols / 2, 2 * kF16Bytes);
  const auto group = static_cast<std::size_t>(layout.group);
  const bool four = is_affine4(layout.kind);
  for (std::size_t i = 0; i < cols / group; ++i) {
    copy(four ? group / 8 : group / 4, 4);  // codes
    copy(four ? 2 : 1, kF16Bytes);          // scales, and offsets
  }
}

}  // namespace

void take_rows(const Matrix& from, std::span<const int32_t> rows, std::byte* out) {
  const std::size_t tile_bytes = from.tile_bytes();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::size_t>(rows[i]);
    copy_lane(from, from.tiles + row / kTileRows * tile_bytes, row % kTileRows,
              out + i / kTileRows * tile_bytes, i % kTileRows);
  }
}

void read_row(const Matrix& matrix, int row, float* out) {
  const int tile = row / kTileRows;
  const int lane = row % kTileRows;
  if (!is_affine(matrix.kind)) {
    for (int col = 0; col < matrix.cols; ++col) out[col] = float_value(matrix, tile, lane, col);
    return;
  }
  const bool four = is_affine4(matrix.kind);
  for (int index = 0; index < matrix.cols / matrix.group; ++index) {
    const Group group = group_of(matrix, tile, index);
    const float scale = half_at(group.scales, lane);
    const float offset = offset_at(matrix, group, lane);
    for (int col = 0; col < matrix.group; ++col) {
      const int code = four ? affine4_code(group, col, lane) : affine8_code(group, col, lane);
      *out++ = scale * static_cast<float>(code) + offset;
    }
  }
}

bool convert(const Matrix& from, WeightKind kind, uint16_t* out, ThreadPool& pool) {
  std::atomic<bool> finite{true};
  pool.run([&](ThreadPool::Member& member) {
    member.share(from.tile_count(), 1, [&](int begin, int end) {
      for (int tile = begin; tile < end; ++tile) {
        uint16_t* place = out + static_cast<std::size_t>(tile) * kTileRows * from.cols;
        if (!convert_tile(from, tile, kind, place)) finite = false;
      }
    });
  });
  return finite;
}

}  // namespace specquant::cpu
