// The CPU kernels behind one table of functions, compiled once for each instruction set.
//
// Every function gives bitwise the same result for a row whatever the number of rows, the thread
// that computes it and the instruction set: sums have one fixed order (16 lanes, then a fixed
// tree), and multiply-adds are fused in all three. Only ActivationKind::bf16 depends on the
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace specquant::cpu {

constexpr int kTileRows = 16;         // output rows of a weight tile
constexpr int kActivationGroup = 32;  // columns that share a scale of quantized activations
constexpr int kRowBlock = 16;         // rows of activations that are packed beside each other

enum class WeightKind { affine4, affine4z, affine8, f16, bf16 };

// 4-bit codes with two f16 numbers a group.
constexpr bool is_affine4(WeightKind kind) {
  return kind == WeightKind::affine4 || kind == WeightKind::affine4z;
}
constexpr bool is_affine(WeightKind kind) {
  return is_affine4(kind) || kind == WeightKind::affine8;
}

const char* name_of(WeightKind kind);

// Weights in the tile layout of docs/packed-format.md. `tiles` is not owned.
struct Matrix {
  WeightKind kind = WeightKind::f16;
  int rows = 0;   // logical rows; the last tile is padded with zero weights
  int cols = 0;   // a multiple of 32
  int group = 0;  // columns of a weight group: 32, 64 or 128 (affine kinds)
  const std::byte* tiles = nullptr;
  int tiles_behind = 0;  // of a piece: tiles of the whole matrix that follow it in memory
  int tile_count() const { return (rows + kTileRows - 1) / kTileRows; }
  std::size_t tile_bytes() const;
};

// How the input of a matrix product is represented.
//   f32    as it is                                             (with f16 weights: precision fp16)
//   bf16   rounded to nearest even                              (with bf16 weights: precision bf16)
//   i16    16-bit integers, one scale a group: absmax / 32639   (w4a16)
//   i8     8-bit integers, one scale a group: absmax / 127      (w4a8, w8a8)
//   u4     16 levels from minimum to maximum of the group, zero in steps of an eighth of a level,
//          held as 8-bit integers 8·code − zero                 (w4a4)
//   u4g16  as u4, in groups of 16 columns                       (w4a4_g16)
// A group is 32 columns in all others. Integers are rounded to nearest even. 32639 = 127·256 + 127
// is the largest integer that splits into two signed bytes, 256·hi + lo, which the kernels multiply
// apart.
// The u4 range always holds zero; its level is a = (max − min)/15, zero = round(−8·min/a) in 0..120
// and code = round(x/a + zero/8) in 0..15, so that x is about (a/8)·(8·code − zero) and the scale
// is a/8. A group whose scale would not be a normal number (all zeros, or below 1e-36) becomes
// zeros with scale 0. A NaN or an infinity anywhere in a group makes the outputs of its row NaN.
enum class ActivationKind { f32, bf16, i16, i8, u4, u4g16 };

constexpr int activation_group(ActivationKind kind) {
  return kind == ActivationKind::u4g16 ? 16 : kActivationGroup;
}

const char* name_of(ActivationKind kind);

// Rows of activations, packed for the kernels. Reused between calls; grows, never shrinks.
//
// Rows are packed in blocks of kRowBlock (the last one may have fewer), block after block. In a
// block the columns are outermost and the rows innermost, so that a broadcast is one load and the
// rows of a register tile share a cache line:
//   f32            [column][row]               f32
//   bf16           [column / 2][row][2]        bf16 where the table has native_bf16, else as f32,
//                                              rounded
//   i8, u4, u4g16  [column / 4][row][4]        bytes
//   i16            [column / 4][row][hi, lo][4]  bytes
// and in `scale`, `scaled_sum` and `integer_sum` [group][row].
struct PackedRows {
  ActivationKind kind = ActivationKind::f32;
  int rows = 0, cols = 0;
  std::vector<std::byte> data;
  std::vector<float> scale;
  std::vector<float> scaled_sum;     // scale · (sum of the integers), for the weights' offset
  std::vector<int32_t> integer_sum;  // sum of the integers
  // Throws std::invalid_argument unless rows > 0 and cols is a positive multiple of 32.
  void prepare(ActivationKind new_kind, int new_rows, int new_cols);
  // Where [group][row] stands in the three arrays.
  std::size_t index(int row, int group) const;
};

struct KernelTable {
  const char* name;  // "avx512", "avx2", "scalar"
  bool native_bf16;  // AVX-512 BF16 is used for ActivationKind::bf16

  // Packs rows [row_begin, row_end) of x (row-major, `stride` floats apart) into `out`, which was
  // prepared for all rows. Threads may pack different rows of one buffer.
  void (*pack)(const float* x, std::size_t stride, int row_begin, int row_end, PackedRows& out);

  // Packs `count` columns of one row, from `column` on; x holds just these. Both are multiples
  // of 32. Threads may pack different columns of one buffer.
  void (*pack_columns)(const float* x, int row, int column, int count, PackedRows& out);

  // y[row · y_stride + output] for the output rows of tiles [tile_begin, tile_end), every packed
  // row. Each weight is read from memory once. `accumulate` adds to y (the residual) instead of
  // storing. Pairs of kinds: f16 with f32, bf16 with bf16, affine4 and affine8 with i16, i8,
  // u4 and u4g16.
  // Another pair, unequal `cols` or tiles out of range throw std::invalid_argument.
  void (*matmul)(const Matrix& weights, const PackedRows& x, int tile_begin, int tile_end, float* y,
                 std::size_t y_stride, bool accumulate);

  // The integer accumulators Σ q·x of one weight tile against one packed row, for tests: 16 for
  // each activation group, [group][output row]. q is the code (affine4) or the code less 128
  // (affine8).
  void (*integer_accumulators)(const Matrix& weights, const PackedRows& x, int tile, int row,
                               int32_t* out);
};

// Best table that this processor runs, or the one named by SPECQUANT_ISA (scalar, avx2, avx512).
// Throws std::runtime_error where the named one cannot run here.
const KernelTable& kernels();
// Null where this processor lacks the instruction set.
const KernelTable* kernels(const std::string& name);

// Checks what matmul demands of its arguments, and throws as said there.
void check_matmul(const Matrix& weights, const PackedRows& x, int tile_begin, int tile_end);

}  // namespace specquant::cpu
