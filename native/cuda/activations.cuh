// Activations between matrices: how they lie in memory, and how a lane takes its share of them.
//
// Every row is stored in 16 bits, padded with zeros to whole 128 columns, in the order
// [0,2,4,6,1,3,5,7] inside each eight columns. Products of integers read 8-bit codes that are made
// from them (quantize.cuh), in natural order, with a scale for each 32 columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/ptx.cuh"
#include "cuda/step.h"

namespace specquant::cuda {

enum class Act { f16, bf16, s8 };

// The place of a column among its eight.
__device__ __forceinline__ int place_of(int column) { return column % 2 * 4 + column / 2; }

// To 16 bits. Values that f16 cannot hold become its largest.
__device__ __forceinline__ uint16_t to_16_bits(float value, bool bf16) {
  return bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
              : __half_as_ushort(__float2half_rn(fminf(fmaxf(value, -65504.0F), 65504.0F)));
}

// Where a lane finds the tokens of a product: token l/4 of each token tile, and of the columns the
// eight that are its own. Null for tokens that are not there: they are zeros.
template <int kTokenTiles>
struct Tokens {
  const uint8_t* row[kTokenTiles];
  const float* scales;  // of codes: [block of 32 columns][token], from the lane's own
};

// Blocks of 32 columns from `column` on.
template <int kTokenTiles, int kBlocks>
__device__ __forceinline__ void load_blocks(const Tokens<kTokenTiles>& tokens, int column,
                                            uint4 (&x)[kTokenTiles][kBlocks]) {
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      x[t][b] = make_uint4(0, 0, 0, 0);
      if (tokens.row[t] != nullptr) {
        x[t][b] = __ldcg(reinterpret_cast<const uint4*>(tokens.row[t] + (column + b * 32) * 2));
      }
    }
  }
}

template <int kTokenTiles, int kBlocks>
__device__ __forceinline__ void load_codes(const Tokens<kTokenTiles>& tokens, int column,
                                           uint2 (&x)[kTokenTiles][kBlocks]) {
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      x[t][b] = make_uint2(0, 0);
      if (tokens.row[t] != nullptr) {
        x[t][b] = __ldcg(reinterpret_cast<const uint2*>(tokens.row[t] + column + b * 32));
      }
    }
  }
}

// Of four blocks of codes: a lane takes that of block l/8 and token l%8 of each token tile.
template <int kTokenTiles>
__device__ __forceinline__ void load_scales(const Tokens<kTokenTiles>& tokens, int column,
                                            float (&scale)[kTokenTiles]) {
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    scale[t] = __ldcg(tokens.scales + column / 32 * kStepRows + t * 8);
  }
}

// Sums over kBlocks of f16 activations for the lane's two tokens 2·(l%4) and + 1: x, y of columns
// 0..3 of each eight, z, w of columns 4..7.
template <int kBlocks>
__device__ __forceinline__ float4 column_sums(const uint4* x) {
  constexpr uint32_t kOnes = 0x3c003c00U;
  float sum[4] = {};
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    // Rows 0..7 of the operand have ones in the former columns, rows 8..15 in the latter.
    mma_f16(sum, kOnes, 0, 0, kOnes, x[b].x, x[b].y);
    mma_f16(sum, kOnes, 0, 0, kOnes, x[b].z, x[b].w);
  }
  return make_float4(sum[0], sum[1], sum[2], sum[3]);
}

// Sums of the values behind 32 codes, for the lane's two tokens.
__device__ __forceinline__ float2 code_sums(uint2 x, float2 scale) {
  constexpr uint32_t kOnes = 0x01010101U;
  int32_t sum[4] = {};
  mma_s8(sum, kOnes, 0, kOnes, 0, x.x, x.y);
  return make_float2(scale.x * static_cast<float>(sum[0]), scale.y * static_cast<float>(sum[1]));
}

}  // namespace specquant::cuda
