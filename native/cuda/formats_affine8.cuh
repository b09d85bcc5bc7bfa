// Products of 8-bit weights (formats.cuh).
#pragma once

#include "cuda/format_inputs.cuh"

namespace specquant::cuda {

// A lane's share of a stage of 8-bit weights.
struct Affine8Weights {
  uint4 words[4];
  __half scales[4][2];  // of rows l/4 and l/4 + 8

  __device__ __forceinline__ void load(const uint8_t* stage, int lane) {
    for (int block = 0; block < 4; ++block) {
      words[block] = *reinterpret_cast<const uint4*>(stage + block * 512 + lane * 16);
      const auto* from = reinterpret_cast<const __half*>(stage + 2048 + block * 32);
      scales[block][0] = from[lane / 4];
      scales[block][1] = from[lane / 4 + 8];
    }
  }
};

// 8-bit weights, a scale for each row and 32 columns. For each block 16 bytes a lane: rows l/4 and
// l/4 + 8 of columns 0..3, then of columns 4..7; behind the four blocks their scales.
struct Affine8S8 {
  static constexpr Act kAct = Act::s8;
  static constexpr int kStageColumns = 128;
  static constexpr int kStageBytes = 2048 + 4 * 32;

  struct Constants {
    float2 scales[4][4];  // [block] of two tokens
  };
  using Input = CodeInput;
  using Weights = Affine8Weights;
  template <int kTokenTiles>
  struct Prepared {
    Constants* shared;

    __device__ __forceinline__ void prepare(const Input (&input)[kTokenTiles], int lane) {
      share_scales(input, lane, shared);
    }
  };

  template <int kTokenTiles, int kStages, class InputAt>
  static __device__ __forceinline__ void multiply(const Weights (&weights)[kStages], int lane,
                                                  InputAt input,
                                                  const Prepared<kTokenTiles>* prepared,
                                                  float (&total)[kTokenTiles][4]) {
#pragma unroll
    for (int i = 0; i < kStages * 4; ++i) {
      const int stage = i / 4, block = i % 4;
      const Constants* constants = prepared[stage].shared;
      const uint4& w = weights[stage].words[block];
      const float r0 = __half2float(weights[stage].scales[block][0]);
      const float r1 = __half2float(weights[stage].scales[block][1]);
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        const uint2 x = input(stage, t, block);
        int32_t sum[4] = {kMagicBits, kMagicBits, kMagicBits, kMagicBits};
        mma_s8(sum, w.x, w.y, w.z, w.w, x.x, x.y);
        const float2 scale = constants[t].scales[block][lane % 4];
        total[t][0] = fmaf(r0, scale.x * from_magic(sum[0]), total[t][0]);
        total[t][1] = fmaf(r0, scale.y * from_magic(sum[1]), total[t][1]);
        total[t][2] = fmaf(r1, scale.x * from_magic(sum[2]), total[t][2]);
        total[t][3] = fmaf(r1, scale.y * from_magic(sum[3]), total[t][3]);
      }
    }
  }
};

// The same weights by f16 activations; 1152 + code, as with 4-bit weights.
struct Affine8F16 {
  static constexpr Act kAct = Act::f16;
  static constexpr int kStageColumns = 128;
  static constexpr int kStageBytes = Affine8S8::kStageBytes;

  struct Constants {
    float2 start[4][4];  // [block] −1152·Σ x of two tokens
  };
  using Input = WideInput<4>;
  using Weights = Affine8Weights;
  template <int kTokenTiles>
  struct Prepared {
    Constants* shared;

    __device__ __forceinline__ void prepare(const Input (&input)[kTokenTiles], int lane) {
      __syncwarp();
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          const float4 s = column_sums<1>(&input[t].x[b]);
          if (lane >= 4) continue;
          shared[t].start[b][lane] = make_float2(-1152.0F * (s.x + s.z), -1152.0F * (s.y + s.w));
        }
      }
      __syncwarp();
    }
  };

  template <int kTokenTiles, int kStages, class InputAt>
  static __device__ __forceinline__ void multiply(const Weights (&weights)[kStages], int lane,
                                                  InputAt input,
                                                  const Prepared<kTokenTiles>* prepared,
                                                  float (&total)[kTokenTiles][4]) {
#pragma unroll
    for (int i = 0; i < kStages * 4; ++i) {
      const int stage = i / 4, block = i % 4;
      const Constants* constants = prepared[stage].shared;
      const uint4& w = weights[stage].words[block];
      const float r0 = __half2float(weights[stage].scales[block][0]);
      const float r1 = __half2float(weights[stage].scales[block][1]);
      uint32_t upper[4], lower[4];
      unpack(w.x, w.z, upper);
      unpack(w.y, w.w, lower);
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        const float2 start = constants[t].start[block][lane % 4];
        const uint4 x = input(stage, t, block);
        float sum[4] = {start.x, start.y, start.x, start.y};
        mma_f16(sum, upper[0], lower[0], upper[1], lower[1], x.x, x.y);
        mma_f16(sum, upper[2], lower[2], upper[3], lower[3], x.z, x.w);
        total[t][0] = fmaf(r0, sum[0], total[t][0]);
        total[t][1] = fmaf(r0, sum[1], total[t][1]);
        total[t][2] = fmaf(r1, sum[2], total[t][2]);
        total[t][3] = fmaf(r1, sum[3], total[t][3]);
      }
    }
  }

  // Columns 0..3 and 4..7 of a row as signed bytes: pairs (0,2), (4,6), (1,3), (5,7) of 1152 +
  // code.
  static __device__ __forceinline__ void unpack(uint32_t first, uint32_t last,
                                                uint32_t (&pair)[4]) {
    first ^= 0x80808080U;
    last ^= 0x80808080U;
    pair[0] = __byte_perm(first, 0x64646464U, 0x4240);
    pair[1] = __byte_perm(last, 0x64646464U, 0x4240);
    pair[2] = __byte_perm(first, 0x64646464U, 0x4341);
    pair[3] = __byte_perm(last, 0x64646464U, 0x4341);
  }
};

}  // namespace specquant::cuda
