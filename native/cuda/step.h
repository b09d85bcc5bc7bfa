// What the kernels of a forward pass are told. Plain data, shared by host and device.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace specquant::cuda {

constexpr int kStepRows = 32;  // the most rows of one pass through the layers
constexpr int kTileRows = 16;  // output rows of a weight tile
constexpr int kMaxParts = 16;
constexpr int kMaxHeadDim = 128;
constexpr int kQueries = 8;           // rows x query heads that attend together
constexpr int kConstantBytes = 1024;  // of a stage's activations, in shared memory
constexpr int kResidualTiles = 4;     // tiles of the residual stream that a block can own

// A matrix in tiles. Its columns are cut into `parts`, a number that depends on the shape alone:
// each part is summed from zero, and the parts are added in order, whoever computes them.
struct MatrixShape {
  int tiles = 0, stages = 0, parts = 0;
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

// 16-bit activations are stored as activations.cuh says; strides are columns, padding included.
struct StepArgs {
  const uint8_t* const* weights;  // [layer][kind]
  const float*
      norms;  // [2 · layers + 1][hidden]: before attention, before the MLP ...; the final one
  MatrixShape shapes[kMatrixKinds];
  int layers, hidden, intermediate, heads, kv_heads, head_dim, max_positions;
  int hidden_stride, attention_stride, intermediate_stride;
  int rows, groups;
  bool four_bits;  // activations are rounded to 4 bits
  bool head_bf16;  // the head reads bf16, otherwise f16
  float epsilon;
  const StepRow* row;
  const RowGroup* group;
  const uint16_t* first;  // what the first product takes, in rows of `first_stride` columns
  int first_stride;
  float* const* kept;     // [layer]: where the residual stream behind it goes, [row][hidden], or
                          // null; the table is null where no layer keeps it
  const float2* rotary;   // [position][pair]: cosine, sine
  const float* residual;  // [row][hidden]: the embedding
  float* squares;         // [row][hidden / 16]: sums of squares of the residual stream
  uint16_t* normed;       // the residual stream times the next norm's weights
  __half* query;          // [row][heads · head_dim], natural order
  uint16_t* attention;
  uint16_t* mlp;
  int8_t* codes;       // of the activations that are multiplied next, for products of integers
  float* scales;       // [block of 32 columns][row]
  __half* keys;        // [slot][layer][kv head][position][dimension]
  __half* values;      // [slot][layer][kv head][dimension][position]
  unsigned* arrivals;  // of the grid barrier; zero at the start
};

struct HeadArgs {
  const uint8_t* weights;
  MatrixShape shape;
  int vocabulary, hidden, hidden_stride, rows;
  float epsilon;
  const int32_t* row;  // rows of the residual stream
  const uint16_t* normed;
  const float* squares;
  int8_t* codes;
  float* scales;
  float* logits;  // [row][vocabulary]
  unsigned* arrivals;
};

enum class WeightFormat { f16, bf16, affine4_g32, affine4_g128, affine8 };

// Launches on `stream`; the return value is CUDA's.
using StepLaunch = int (*)(const StepArgs& args, int blocks, void* stream);
using HeadLaunch = int (*)(const HeadArgs& args, int blocks, void* stream);
struct Launchers {
  StepLaunch step;
  HeadLaunch head;
  int rows;  // the most of a pass
};

// By weight format and activations (`integers`: 8- or 4-bit).
Launchers launchers_f16();
Launchers launchers_bf16();
Launchers launchers_affine4_g32_f16();
Launchers launchers_affine4_g128_f16();
Launchers launchers_affine4_g32_s8();
Launchers launchers_affine4_g128_s8();
Launchers launchers_affine8_f16();  // head only
Launchers launchers_affine8_s8();

}  // namespace specquant::cuda
