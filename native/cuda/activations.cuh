// Activations between matrices: how they lie in memory, and how a lane takes its share of them.
//
// [block of 32 columns][row, up to kPassRows][32], so that what a lane group of eight tokens reads
// is one piece of memory. Values have 16 bits, in the order [0,2,4,6,1,3,5,7] inside each eight
// columns; rows are padded with zeros to whole 128 columns. Products of integers read 8-bit codes
// that are made from them (quantize.cuh), in natural order, with a scale for each block and row.
//
// A wide pass keeps a block as warpgroups multiply it (warpgroup.cuh): [octet][row, of 32 or
// 64][16 bytes], where an octet of 16-bit values has places 2i and 2i + 1 of each eight columns,
// the i-th octet of four, and of codes their first or last four columns.
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

// The place of a row's column in 16-bit activations of a pass whose blocks have `wide_rows` rows
// (0: a narrow one).
__device__ __forceinline__ size_t activation_index(int row, int column, int wide_rows) {
  const int place = place_of(column % 8), eight = column % 32 / 8;
  const size_t block = static_cast<size_t>(column / 32) * kPassRows;
  if (wide_rows == 0) return (block + row) * 32 + eight * 8 + place;
  return block * 32 + (place / 2 * wide_rows + row) * 8 + eight * 2 + place % 2;
}

// Where a lane finds a token tile of a product: token l/4 and of the columns the eight that are its
// own. Null for a token that is not there: it is zeros.
struct TokenTile {
  const uint8_t* row;
  const float* scales;  // of codes: [block of 32 columns][row], from the lane's own
};

// Blocks of 32 columns from `column` on; 16 bytes of values or 8 of codes a lane. load(address)
// reads them.
template <class Fragment, int kBlocks, class Load>
__device__ __forceinline__ void load_blocks(const TokenTile& tile, int column,
                                            Fragment (&x)[kBlocks], Load load) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    x[b] = Fragment{};
    if (tile.row != nullptr) {
      x[b] = load(reinterpret_cast<const Fragment*>(
          tile.row + static_cast<size_t>(column / 32 + b) * (kPassRows * 4 * sizeof(Fragment))));
    }
  }
}

// Of four blocks of codes: a lane takes that of block l/8 and token l%8.
__device__ __forceinline__ float load_scale(const TokenTile& tile, int column) {
  return __ldcg(tile.scales + column / 32 * kPassRows);
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
