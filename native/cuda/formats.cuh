// How weights lie in memory, and the product of one stage of them with activations.
//
// Weights are the A operand of the tensor cores: a tile is 16 output rows, a stage of a tile is 128
// columns (64 for 16-bit weights), contiguous in memory. Tokens are the operand's N, eight to a
// token tile. In each block of 32 columns lane l holds rows l/4 and l/4 + 8 and the eight columns
// 8·(l%4) ..., of weights and of activations alike, so that both are loaded in one piece; the order
// of columns inside a product does not matter as long as both operands agree.
//
// Each format has an `Input`, a stage's activations of a token tile in registers, which `load` asks
// for, so that loads of several inputs can be under way; `Prepared`, what products need to know of
// the inputs of a stage, as `Constants` for pairs of tokens in the warp's shared memory or in
// registers; and `Weights`, a lane's share of a stage of a weight tile. `multiply` adds the
// products of stages that follow one another; input(s, t, b) gives the activations of stage s,
// token tile t and block b.
#pragma once

#include "cuda/formats_affine4.cuh"
#include "cuda/formats_affine8.cuh"

namespace specquant::cuda {

// 16-bit weights: for each block 16 bytes a lane for rows 0..7, then for rows 8..15, in the order
// of 16-bit activations.
template <Act kType>
struct Float16 {
  static constexpr Act kAct = kType;
  static constexpr int kStageColumns = 64;
  static constexpr int kStageBytes = 2048;

  struct Constants {};
  using Input = WideInput<2>;
  // A lane's share of a stage.
  struct Weights {
    uint4 upper[2], lower[2];  // [block]

    __device__ __forceinline__ void load(const uint8_t* stage, int lane) {
      for (int block = 0; block < 2; ++block) {
        const uint8_t* from = stage + block * 1024 + lane * 16;
        upper[block] = *reinterpret_cast<const uint4*>(from);
        lower[block] = *reinterpret_cast<const uint4*>(from + 512);
      }
    }
  };
  template <int kTokenTiles>
  struct Prepared {
    Constants* shared;
    __device__ __forceinline__ void prepare(const Input (&)[kTokenTiles], int) {}
  };

  template <int kTokenTiles, int kStages, class InputAt>
  static __device__ __forceinline__ void multiply(const Weights (&weights)[kStages], int,
                                                  InputAt input, const Prepared<kTokenTiles>*,
                                                  float (&total)[kTokenTiles][4]) {
#pragma unroll
    for (int i = 0; i < kStages * 2; ++i) {
      const int stage = i / 2, block = i % 2;
      const uint4 &upper = weights[stage].upper[block], &lower = weights[stage].lower[block];
      uint4 x[kTokenTiles];
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) x[t] = input(stage, t, block);
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        mma(total[t], upper.x, lower.x, upper.y, lower.y, x[t].x, x[t].y);
      }
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        mma(total[t], upper.z, lower.z, upper.w, lower.w, x[t].z, x[t].w);
      }
    }
  }

 private:
  static __device__ __forceinline__ void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1) {
    if constexpr (kType == Act::f16) {
      mma_f16(c, a0, a1, a2, a3, b0, b1);
    } else {
      mma_bf16(c, a0, a1, a2, a3, b0, b1);
    }
  }
};

}  // namespace specquant::cuda
