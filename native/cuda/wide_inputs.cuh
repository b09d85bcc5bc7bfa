// Activations of a wide pass in shared memory, a stage of them, as warpgroups multiply them.
#pragma once

#include <algorithm>

#include "cuda/formats.cuh"
#include "cuda/warpgroup.cuh"

namespace specquant::cuda {

// The product of a format (wide_formats.cuh).
template <class Format>
struct WideFormat;

// Activations of a stage's columns and of all rows, in shared memory.
template <class Format, int kTokenTiles>
struct StageInput {
  static constexpr int kRows = kTokenTiles * 8;
  static constexpr int kBlocks = Format::kStageColumns / 32;
  static constexpr bool kCodes = Format::kAct == Act::s8;
  static constexpr int kRowBytes = kCodes ? 32 : 64;  // of a block
  static constexpr int kScaleBlocks = kCodes ? kBlocks : 0;

  alignas(128) uint8_t octets[kBlocks][kRows * kRowBytes];  // activations.cuh
  float scales[std::max(kScaleBlocks, 1)][kRows];           // of codes
  typename WideFormat<Format>::Constants constants[kTokenTiles];

  // Where a product with 16 columns of 16 bits, or 32 of bytes, finds them.
  __device__ __forceinline__ uint64_t operand(int block, int half = 0, int token_tile = 0) const {
    return operand_at<kRows>(shared_address(octets),
                             block * kRows * kRowBytes + half * kRows * 32 + token_tile * 128);
  }
  // Two octets of 16 tokens, as the left operand of a product (ptx.cuh).
  __device__ __forceinline__ uint4 tokens(int block, int half, int first, int lane) const {
    return load_matrices(shared_address(octets[block]) +
                         ((half * 2 + lane / 16) * kRows + first + lane % 16) * 16);
  }
  // The codes of a token, in any order.
  __device__ __forceinline__ uint4 codes(int block, int half, int token) const {
    return reinterpret_cast<const uint4*>(octets[block])[half * kRows + token];
  }
  // Of the lane's two tokens of token tile t.
  __device__ __forceinline__ float2 scale(int block, int t, int lane) const {
    return reinterpret_cast<const float2*>(scales[block])[t * 4 + lane % 4];
  }
};

// What a warp multiplies: its tile's part of a stage, in shared memory, with the stage's
// activations.
template <class Format, int kTokenTiles>
struct WideStage {
  const uint8_t* weights;
  const StageInput<Format, kTokenTiles>* input;
};

// column_sums of activations.cuh over kBlocks blocks, of all tokens: put(t, r, first, second)
// gets those of columns 0..3 and of columns 4..7 of each eight, for row r of token tile t. Tokens
// are the rows of the product here, so that it takes half as many, which wait for the tensor cores
// that warpgroups keep busy.
template <int kBlocks, class Input, class Put>
__device__ __forceinline__ void sums_of_columns(const Input& input, int first_block, int lane,
                                                Put put) {
  constexpr int kProducts = Input::kRows / 16;
  constexpr uint32_t kOnes = 0x3c003c00U;
  // Even columns of the other operand have ones in its first eight rows, odd ones in the last.
  const uint32_t first = lane / 4 % 2 == 0 ? kOnes : 0, last = kOnes - first;
  float sum[kProducts][4] = {};
#pragma unroll
  for (int i = 0; i < kBlocks * 2; ++i) {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
      const uint4 x = input.tokens(first_block + i / 2, i % 2, p * 16, lane);
      mma_f16(sum[p], x.x, x.y, x.z, x.w, first, last);
    }
  }
  if (lane % 4 != 0) return;
#pragma unroll
  for (int p = 0; p < kProducts; ++p) {
    put(2 * p, lane / 4, sum[p][0], sum[p][1]);
    put(2 * p + 1, lane / 4, sum[p][2], sum[p][3]);
  }
}

}  // namespace specquant::cuda
