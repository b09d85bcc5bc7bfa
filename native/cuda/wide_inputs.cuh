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
    return operand_at<kRows>(shared_address(octets[block]) + half * kRows * 32 + token_tile * 128);
  }
  // Of token tile t, in the lanes' order.
  __device__ __forceinline__ uint4 values(int block, int t, int lane) const {
    return load_matrices(shared_address(octets[block]) + lane / 8 * kRows * 16 +
                         (t * 8 + lane % 8) * 16);
  }
  // Of the lane's two tokens of token tile t.
  __device__ __forceinline__ float2 scale(int block, int t, int lane) const {
    return reinterpret_cast<const float2*>(scales[block])[t * 4 + lane % 4];
  }
};

// column_sums of activations.cuh over kBlocks blocks, of kTiles token tiles side by side.
template <int kBlocks, int kTiles, class Input>
__device__ __forceinline__ void sums_of_columns(const Input& input, int first_block, int first,
                                                int lane, float (&sum)[kTiles][4]) {
  uint32_t ones, zero;  // where the compiler cannot make them anew for each product
  asm volatile("mov.b32 %0, 0x3c003c00; mov.b32 %1, 0;" : "=r"(ones), "=r"(zero));
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    uint4 x[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) x[t] = input.values(first_block + b, first + t, lane);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) mma_f16(sum[t], ones, zero, zero, ones, x[t].x, x[t].y);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) mma_f16(sum[t], ones, zero, zero, ones, x[t].z, x[t].w);
  }
}

}  // namespace specquant::cuda
