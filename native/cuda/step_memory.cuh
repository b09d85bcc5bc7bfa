// Shared memory of a block for the whole pass.
#pragma once

#include "cuda/multiply.cuh"
#include "cuda/prefetched_stream.cuh"

namespace specquant::cuda {

// The padding keeps queries in different banks.
struct AttentionMemory : AttentionParts<kMaxHeadDim + 4> {
  int32_t tail[64];  // cache entries behind the prefix that a row of a tree sees
};

// How weights come to the warps.
template <Kernels kKernels>
struct Streams;
template <>
struct Streams<Kernels::sm_80> {
  using Memory = PrefetchMemory;
  template <class Format, int kBatch>
  using Stream = PrefetchedStream<Format, kBatch>;
};
template <>
struct Streams<Kernels::sm_90> {
  using Memory = StreamMemory;
  template <class Format, int kBatch>
  using Stream = WeightStream<Format, kBatch>;
};

template <Kernels kKernels>
struct StepMemory {
  typename Streams<kKernels>::Memory stream;
  union {
    Partials<1> partials;
    AttentionMemory attention;
  };
  uint8_t constants[kWarps][kConstantBytes];  // Format::Constants of a warp's inputs
  float rms[kNarrowRows];
  StepRow row[kNarrowRows];
  RowGroup group[kNarrowRows];
  float2 rotary[kNarrowRows][kMaxHeadDim / 2];
  float norm[kResidualTiles][kTileRows];  // weights of the next norm, of the block's own tiles
  float residual[kResidualTiles][kNarrowRows][kTileRows];  // of the tiles that the block owns
};
static_assert(sizeof(Partials<1>) == sizeof(Partials<2>));
static_assert(sizeof(StepMemory<Kernels::sm_90>) <= 227 * 1024);
static_assert(sizeof(StepMemory<Kernels::sm_80>) <= 99 * 1024);  // of 8.6 and 8.9; 8.0 has more

template <int kTokenTiles, class Memory>
__device__ __forceinline__ Partials<kTokenTiles>& partials_of(Memory& memory) {
  return reinterpret_cast<Partials<kTokenTiles>&>(memory.partials);
}

}  // namespace specquant::cuda
