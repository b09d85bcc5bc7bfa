// What the kernels of a forward pass are told. Plain data, shared by host and device.
#pragma once

#include <cuda_fp16.h>
#include <vector_types.h>

#include <cstddef>
#include <cstdint>

namespace specquant::cuda {

constexpr int kPassRows = 64;    // the most rows of one pass through the layers
constexpr int kNarrowRows = 16;  // the most of a pass of one kernel (step.cuh); wide.cuh takes more
constexpr int kTileRows = 16;    // output rows of a weight tile

constexpr int kMaxParts = 16;
constexpr int kMostSlices = 4;
constexpr int kMaxHeadDim = 128;
constexpr int kQueries = 8;           // rows x query heads that attend together
constexpr int kConstantBytes = 1024;  // of a stage's activations, in shared memory
constexpr int kResidualTiles = 4;     // tiles of the residual stream that a block can own

// A matrix in tiles. Its columns are cut into `slices` and these into `parts` (their number is that
// of the whole matrix), numbers that depend on the shape alone: each part is summed from zero, the
// parts of a slice are added in order and then the slices, whoever computes them.
struct MatrixShape {
  int tiles = 0, stages = 0, parts = 0, slices = 0;
  int columns = 0;  // before padding to whole stages
};

enum MatrixKind { kQkv, kO, kGateUp, kDown, kMatrixKinds };

// A row of the pass: where it stands and what it sees.
struct StepRow {
  int32_t slot, token, cache_index, position;
  int32_t prefix;   // cache entries seen at their own index
  int32_t visible;  // entries seen in all
  uint64_t ancestors;
};

// Rows of one sequence that attend together; a row of a tree attends alone.
struct RowGroup {
  int32_t first, count;
};

constexpr int kSplit = 16;  // positions that a warp attends to at a time
constexpr int kTeams = 16;  // among which splits are dealt out

// Results of the teams of an attention unit, to be added in order.
template <int kStride>
struct AttentionParts {
  float out[kTeams][kQueries][kStride];
  float maximum[kTeams][kQueries];
  float total[kTeams][kQueries];
};

// Where blocks that take a slice of the columns each meet (wide_multiply.cuh).
struct SliceExchange {
  float4* sums;        // [slice][tile][token tile][lane]
  unsigned* arrivals;  // of a group of blocks; zeros between kernels
};

// What the blocks of a narrow pass hand to one another in a layer (handover.cuh): activations, and
// sums of squares of the residual stream. Odd layers have the same memory again, `next` bytes
// behind.
struct Handover {
  AttentionParts<kMaxHeadDim>* attention_parts;  // [unit], where several blocks attend to one
  uint16_t* attention;
  uint16_t* before_mlp;
  float* squares_before_mlp;
  uint16_t* mlp;
  uint16_t* behind;  // what the next layer takes
  float* squares_behind;
  std::ptrdiff_t next;
};

// Activations as integers.
struct Codes {
  int8_t* codes;
  float* scales;  // [block of 32 columns][kPassRows]
};

// Activations are stored as activations.cuh says; `..._padded` are their columns, zeros included.
struct StepArgs {
  const uint8_t* const* weights;  // [layer][kind]
  const float*
      norms;  // [2 · layers + 1][hidden]: before attention, before the MLP ...; the final one
  MatrixShape shapes[kMatrixKinds];
  int layers, hidden, intermediate, heads, kv_heads, head_dim, max_positions;
  int hidden_padded, attention_padded, intermediate_padded;
  int rows, groups;
  int wide_rows;   // for which a wide pass has room; 0: a narrow one
  bool four_bits;  // activations are rounded to 4 bits
  bool head_bf16;  // the head reads bf16, otherwise f16
  float epsilon;
  const StepRow* row;
  const RowGroup* group;
  const uint16_t* first;  // what the first product takes, of `first_padded` columns
  int first_padded;
  float* const* kept;    // [layer]: where the residual stream behind it goes, [row][hidden], or
                         // null; the table is null where no layer keeps it
  const float2* rotary;  // [position][pair]: cosine, sine
  float* residual;       // [row][hidden]: the embedding; a wide pass keeps the stream here
  float* squares;        // [row][hidden / 16]: sums of squares of the residual stream
  uint16_t* normed;      // the residual stream times the next norm's weights
  Handover handover;
  __half* query;  // [row][heads · head_dim], natural order
  uint16_t* attention;
  uint16_t* mlp;
  int8_t* codes;  // of the activations that are multiplied next, for products of integers
  float* scales;  // [block of 32 columns][kPassRows]
  Codes normed_codes, attention_codes, mlp_codes;  // left by the kernels of a wide pass
  __half* keys;                                    // [slot][layer][kv head][position][dimension]
  __half* values;                                  // [slot][layer][kv head][dimension][position]
  unsigned* arrivals;                              // of the grid barrier; zero at the start
  SliceExchange exchange;
};

struct HeadArgs {
  const uint8_t* weights;
  MatrixShape shape;
  int vocabulary, hidden, hidden_padded;
  int rows;       // of the pass, all of which are multiplied
  int wide_rows;  // as in StepArgs
  float epsilon;
  const int32_t* logit_row;  // of each row of the pass its row of logits, or -1
  const uint16_t* normed;
  const float* squares;
  int8_t* codes;
  float* scales;
  float* logits;  // [row][vocabulary]
  unsigned* arrivals;
  SliceExchange exchange;
};

// affine4z: groups have a zero point (Offset in formats_affine4.cuh).
enum class WeightFormat {
  f16,
  bf16,
  affine4_g32,
  affine4_g128,
  affine4z_g32,
  affine4z_g128,
  affine8
};

// Which kernels a GPU runs: of compute capability 9.0 those that need bulk copies, otherwise those
// of 8.0, which only have narrow passes.
enum class Kernels { sm_80, sm_90 };

constexpr Kernels kernels_of(int architecture) {
  return architecture >= 90 ? Kernels::sm_90 : Kernels::sm_80;
}

// The most rows of one pass.
constexpr int pass_rows(Kernels kernels) {
  return kernels == Kernels::sm_90 ? kPassRows : kNarrowRows;
}

// Launches on `stream`; the return value is CUDA's.
using StepLaunch = int (*)(const StepArgs& args, int blocks, void* stream);
using HeadLaunch = int (*)(const HeadArgs& args, int blocks, void* stream);
struct Launchers {
  StepLaunch step;
  HeadLaunch head;
  int narrow_rows;  // more are a wide pass

  // StepArgs::wide_rows of a pass.
  [[nodiscard]] constexpr int wide_rows(int rows) const {
    return rows <= narrow_rows ? 0 : rows <= 32 ? 32 : kPassRows;
  }
};

// By weight format and activations (`integers`: 8- or 4-bit).
Launchers launchers_f16(Kernels kernels);
Launchers launchers_bf16(Kernels kernels);
Launchers launchers_affine4_g32_f16(Kernels kernels);
Launchers launchers_affine4_g128_f16(Kernels kernels);
Launchers launchers_affine4_g32_s8(Kernels kernels);
Launchers launchers_affine4_g128_s8(Kernels kernels);
Launchers launchers_affine4z_g32_f16(Kernels kernels);
Launchers launchers_affine4z_g128_f16(Kernels kernels);
Launchers launchers_affine4z_g32_s8(Kernels kernels);
Launchers launchers_affine4z_g128_s8(Kernels kernels);
Launchers launchers_affine8_f16(Kernels kernels);  // head only
Launchers launchers_affine8_s8(Kernels kernels);

}  // namespace specquant::cuda
