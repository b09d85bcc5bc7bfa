// What the formats of weights share: activations in registers, and sums of integers.
#pragma once

#include "cuda/handover.cuh"
#include "cuda/ptx.cuh"

namespace specquant::cuda {

// Activations of 16 bits: kBlocks blocks of 32 columns. What other blocks hand over may not be
// `there` when it is loaded.
template <int kBlocks>
struct WideInput {
  uint4 x[kBlocks];

  __device__ __forceinline__ void load(const TokenTile& tile, int column) {
    load_blocks(tile, column, x, [](const uint4* from) { return load_relaxed_piece(from); });
  }
  __device__ __forceinline__ bool there() const {
    bool all = true;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) all = all && written(x[b]);
    return all;
  }
};

// Activations of 8 bits, four blocks of 32 columns with their scales.
struct CodeInput {
  uint2 x[4];
  float scale;  // on its way: of block l/8, token l%8

  __device__ __forceinline__ void load(const TokenTile& tile, int column) {
    load_blocks(tile, column, x, [](const uint2* from) { return __ldcg(from); });
    scale = load_scale(tile, column);
  }
  __device__ __forceinline__ bool there() const { return true; }
};

// Makes the scales that each lane has brought known to its warp.
template <int kTokenTiles, class Constants>
__device__ __forceinline__ void share_scales(const CodeInput (&input)[kTokenTiles], int lane,
                                             Constants* constants) {
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    reinterpret_cast<float*>(constants[t].scales)[lane] = input[t].scale;
  }
  __syncwarp();
}

// Integer sums start at the bits of 1.5·2^23: read as a float they are that number plus the sum, so
// that one subtraction converts them (exact below 2^22).
constexpr int32_t kMagicBits = 0x4B400000;
__device__ __forceinline__ float from_magic(int32_t bits) {
  return __int_as_float(bits) - 12582912.0F;
}

}  // namespace specquant::cuda
