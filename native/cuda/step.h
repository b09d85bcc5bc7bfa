// What the kernels of a forward pass are told. Plain data, shared by host and device.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace specquant::cuda {

constexpr int kStepRows = 64;  // rows of one pass through the layers
constexpr int kTileRows = 16;  // output rows of a weight tile
constexpr int kMaxParts = 8;

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

struct StepArgs {
  const uint8_t* const* weights;  // [layer][kind]
  const float* const* norms;      // [layer]: before attention, before the MLP
  MatrixShape shapes[kMatrixKinds];
  int layers, hidden, intermediate, heads, kv_heads, head_dim, max_positions;
  int rows, groups;
  bool four_bits;  // activations are rounded to 4 bits
  float epsilon;
  const StepRow* row;
  const RowGroup* group;
  const float2* rotary;  // [position][pair]: cosine, sine
  float* residual;       // [row][hidden]
  float* squares;        // [row][hidden / 16]: sums of squares of the residual stream
  float* query;          // [row][heads · head_dim]
  float* attention;      // as query
  float* mlp;            // [row][intermediate]
  __half* keys;          // [slot][layer][kv head][position][dimension]
  __half* values;        // [slot][layer][kv head][dimension][position]
  float4* partial;       // sums of parts, in the order of the lanes
  unsigned* tickets;     // [tile]: parts done; left at zero
  unsigned* arrivals;    // of the grid barrier; zero at the start
};

struct HeadArgs {
  const uint8_t* weights;
  MatrixShape shape;
  int vocabulary, hidden, rows;
  bool four_bits;
  float epsilon;
  const float* norm;
  const int32_t* row;  // rows of the residual stream
  const float* residual;
  const float* squares;
  float* logits;  // [row][vocabulary]
  float4* partial;
  unsigned* tickets;
};

enum class WeightFormat { f16, bf16, affine4_g32, affine4_g128, affine8 };

// Launches on `stream`; the return value is CUDA's.
using StepLaunch = int (*)(const StepArgs& args, int blocks, void* stream);
using HeadLaunch = int (*)(const HeadArgs& args, int blocks, void* stream);
struct Launchers {
  StepLaunch step;
  HeadLaunch head;
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
