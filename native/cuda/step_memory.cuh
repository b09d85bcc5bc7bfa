// Shared memory of a block for the whole pass.
#pragma once

#include "cuda/multiply.cuh"

namespace specquant::cuda {

constexpr int kSplit = 32;      // positions that attention takes at a time
constexpr int kOutStride = 68;  // floats of a row of 64 dimensions, against bank conflicts

// Results of the warps of an attention unit, to be added in order.
struct AttentionMemory {
  float out[kWarps][16][kOutStride];
  float maximum[kWarps][16];
  float total[kWarps][16];
  int32_t tail[64];  // cache entries behind the prefix that a row of a tree sees
};

struct StepMemory {
  StreamMemory stream;
  union {
    Partials<1> partials;
    AttentionMemory attention;
  };
  float rms[kStepRows];
  StepRow row[kStepRows];
  RowGroup group[kStepRows];
  float2 rotary[kStepRows][kMaxHeadDim / 2];
  float residual[kResidualTiles][kStepRows][kTileRows];  // of the tiles that the block owns
};
static_assert(sizeof(Partials<1>) == sizeof(Partials<2>));
static_assert(sizeof(StepMemory) <= 227 * 1024);

template <int kTokenTiles>
__device__ __forceinline__ Partials<kTokenTiles>& partials_of(StepMemory& memory) {
  return reinterpret_cast<Partials<kTokenTiles>&>(memory.partials);
}

}  // namespace specquant::cuda
