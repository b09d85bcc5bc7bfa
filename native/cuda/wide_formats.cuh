// The product of one stage of a tile with the activations of a wide pass, by a warpgroup whose
// warps have a tile each: the sums of Format::multiply (formats.cuh), in the same order.
//
// `multiply` takes the warp's stage in shared memory; behind it stage and activations have been
// read. While its last products run it calls next(), which waits for the stage that follows (or
// gives the last once more), and takes ahead of it what `begin` takes of the first. `prepare`
// derives from a stage's activations the `Constants` that products need; by a warp.
// tiles_in_registers says of how many token tiles a thread has room for the sums over all stages.
#pragma once

#include "cuda/wide_formats_affine4.cuh"

namespace specquant::cuda {

template <Act kType>
struct WideFormat<Float16<kType>> {
  static constexpr int tiles_in_registers(int token_tiles) { return token_tiles; }
  using Format = Float16<kType>;
  struct Constants {};
  template <int kTokenTiles>
  struct Ahead {
    uint4 upper[2], lower[2];
  };
  template <int kTokenTiles>
  static __device__ __forceinline__ void begin(const WideStage<Format, kTokenTiles>& stage,
                                               int lane, Ahead<kTokenTiles>& ahead) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const uint8_t* from = stage.weights + block * 1024 + lane * 16;
      ahead.upper[block] = *reinterpret_cast<const uint4*>(from);
      ahead.lower[block] = *reinterpret_cast<const uint4*>(from + 512);
    }
  }

  template <int kTokenTiles, class Next>
  static __device__ __forceinline__ void multiply(const WideStage<Format, kTokenTiles>& stage,
                                                  int lane, Ahead<kTokenTiles>& ahead,
                                                  float (&total)[kTokenTiles][4], Next next) {
    warpgroup_begin();
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const uint4 &upper = ahead.upper[block], &lower = ahead.lower[block];
      warpgroup_mma<kType>(total, upper.x, lower.x, upper.y, lower.y, stage.input->operand(block));
      warpgroup_mma<kType>(total, upper.z, lower.z, upper.w, lower.w,
                           stage.input->operand(block, 1));
    }
    warpgroup_commit();
    const WideStage<Format, kTokenTiles> following = next();
    warpgroup_wait<0>(total);  // the registers of weights are free
    begin(following, lane, ahead);
  }
};

template <>
struct WideFormat<Affine8S8> {
  static constexpr int tiles_in_registers(int token_tiles) { return std::min(token_tiles, 4); }
  using Format = Affine8S8;
  struct Constants {};
  template <int kTokenTiles>
  struct Ahead {};
  template <int kTokenTiles, class Next>
  static __device__ __forceinline__ void multiply(const WideStage<Format, kTokenTiles>& stage,
                                                  int lane, Ahead<kTokenTiles>&,
                                                  float (&total)[kTokenTiles][4], Next next) {
    const auto& input = *stage.input;
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      const uint4 a = *reinterpret_cast<const uint4*>(stage.weights + block * 512 + lane * 16);
      const auto* weight_scales =
          reinterpret_cast<const __half*>(stage.weights + 2048 + block * 32);
      const float r0 = __half2float(weight_scales[lane / 4]);
      const float r1 = __half2float(weight_scales[lane / 4 + 8]);
#pragma unroll
      for (int first = 0; first < kTokenTiles; first += 4) {
        int32_t sum[4][4];
        warpgroup_begin();
        warpgroup_mma_bytes<false>(sum, a, input.operand(block, 0, first));
        warpgroup_commit();
        if (block == 3 && first + 4 == kTokenTiles) next();
        warpgroup_wait<0>(sum);
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          const float2 scale = input.scale(block, first + t, lane);
          float(&own)[4] = total[first + t];
          own[0] = fmaf(r0, scale.x * static_cast<float>(sum[t][0]), own[0]);
          own[1] = fmaf(r0, scale.y * static_cast<float>(sum[t][1]), own[1]);
          own[2] = fmaf(r1, scale.x * static_cast<float>(sum[t][2]), own[2]);
          own[3] = fmaf(r1, scale.y * static_cast<float>(sum[t][3]), own[3]);
        }
      }
    }
  }
};

template <>
struct WideFormat<Affine8F16> {
  static constexpr int tiles_in_registers(int token_tiles) { return std::min(token_tiles, 4); }
  using Format = Affine8F16;
  using Constants = Affine8F16::Constants;
  template <int kTokenTiles>
  struct Ahead {};
  template <class Input>
  static __device__ __forceinline__ void prepare(Input& input, int lane) {
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      const auto put = [&](int t, int r, float first, float second) {
        reinterpret_cast<float*>(input.constants[t].start[block])[r] = -1152.0F * (first + second);
      };
      sums_of_columns<1>(input, block, lane, put);
    }
  }

  template <int kTokenTiles, class Next>
  static __device__ __forceinline__ void multiply(const WideStage<Format, kTokenTiles>& stage,
                                                  int lane, Ahead<kTokenTiles>&,
                                                  float (&total)[kTokenTiles][4], Next next) {
    const auto& input = *stage.input;
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      const uint4 w = *reinterpret_cast<const uint4*>(stage.weights + block * 512 + lane * 16);
      const auto* weight_scales =
          reinterpret_cast<const __half*>(stage.weights + 2048 + block * 32);
      const float r0 = __half2float(weight_scales[lane / 4]);
      const float r1 = __half2float(weight_scales[lane / 4 + 8]);
      uint32_t upper[4], lower[4];
      Affine8F16::unpack(w.x, w.z, upper);
      Affine8F16::unpack(w.y, w.w, lower);
      float sum[kTokenTiles][4];
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        const float2 start = input.constants[t].start[block][lane % 4];
        sum[t][0] = sum[t][2] = start.x;
        sum[t][1] = sum[t][3] = start.y;
      }
      warpgroup_begin();
      warpgroup_mma<Act::f16>(sum, upper[0], lower[0], upper[1], lower[1], input.operand(block));
      warpgroup_mma<Act::f16>(sum, upper[2], lower[2], upper[3], lower[3], input.operand(block, 1));
      warpgroup_commit();
      if (block == 3) next();
      warpgroup_wait<0>(sum);
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        total[t][0] = fmaf(r0, sum[t][0], total[t][0]);
        total[t][1] = fmaf(r0, sum[t][1], total[t][1]);
        total[t][2] = fmaf(r1, sum[t][2], total[t][2]);
        total[t][3] = fmaf(r1, sum[t][3], total[t][3]);
      }
    }
  }
};

}  // namespace specquant::cuda
