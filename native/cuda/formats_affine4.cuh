// Products of 4-bit weights (formats.cuh).
#pragma once

#include "cuda/format_inputs.cuh"

namespace specquant::cuda {

// The words of rows l/4 and l/4 + 8 of a block of 4-bit weights. `pieces` keeps those of two
// blocks.
__device__ __forceinline__ uint2 words_of_block(const uint8_t* stage, int lane, int block,
                                                uint4& pieces) {
  if (block % 2 == 0) {
    pieces = *reinterpret_cast<const uint4*>(stage + block / 2 * 512 + lane * 16);
    return make_uint2(pieces.x, pieces.y);
  }
  return make_uint2(pieces.z, pieces.w);
}

// What stands beside a group's scale s: m of the weights s·q + m, or the negative zero point m of
// s·(q + m), whose product with s f16 cannot hold.
enum class Offset { value, zero_point };

// total + the products of a row's group with a token: `r` are s and m, `sum` is Σ q·x.
template <Offset kOffset>
__device__ __forceinline__ float with_group(float total, float2 r, float sum, float column_sum) {
  if constexpr (kOffset == Offset::value) {
    return fmaf(r.x, sum, fmaf(r.y, column_sum, total));
  } else {
    return fmaf(r.x, fmaf(r.y, column_sum, sum), total);
  }
}

// Scale and offset of a group of 16 rows, those of the lane's two.
struct RowScales {
  __half2 upper, lower;

  __device__ __forceinline__ void load(const uint8_t* scales, int lane) {
    upper = reinterpret_cast<const __half2*>(scales)[lane / 4];
    lower = reinterpret_cast<const __half2*>(scales)[lane / 4 + 8];
  }
};

// Adds a group's products under its scale and offset; column_sums(t) are Σ x of the lane's tokens.
template <Offset kOffset, int kTokenTiles, class ColumnSums>
__device__ __forceinline__ void add_group(const RowScales& scales,
                                          const float (&sum)[kTokenTiles][4],
                                          ColumnSums column_sums, float (&total)[kTokenTiles][4]) {
  const float2 r0 = __half22float2(scales.upper), r1 = __half22float2(scales.lower);
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    const float2 x = column_sums(t);
    total[t][0] = with_group<kOffset>(total[t][0], r0, sum[t][0], x.x);
    total[t][1] = with_group<kOffset>(total[t][1], r0, sum[t][1], x.y);
    total[t][2] = with_group<kOffset>(total[t][2], r1, sum[t][2], x.x);
    total[t][3] = with_group<kOffset>(total[t][3], r1, sum[t][3], x.y);
  }
}
// The same of a group in shared memory.
template <Offset kOffset, int kTokenTiles, class Constants>
__device__ __forceinline__ void add_group(const uint8_t* scales, int lane, int group,
                                          const float (&sum)[kTokenTiles][4],
                                          const Constants* constants,
                                          float (&total)[kTokenTiles][4]) {
  RowScales own;
  own.load(scales, lane);
  add_group<kOffset>(
      own, sum, [&](int t) { return constants[t].column_sums(group, lane % 4); }, total);
}

// A lane's share of a stage of 4-bit weights.
template <int kGroups>
struct Affine4Weights {
  uint4 pieces[2];  // words_of_block
  RowScales scales[kGroups];

  __device__ __forceinline__ void load(const uint8_t* stage, int lane) {
    for (int i = 0; i < 2; ++i) {
      pieces[i] = *reinterpret_cast<const uint4*>(stage + i * 512 + lane * 16);
    }
    for (int g = 0; g < kGroups; ++g) scales[g].load(stage + 1024 + g * 64, lane);
  }
  // The words of rows l/4 and l/4 + 8 of a block.
  __device__ __forceinline__ uint2 words(int block) const {
    const uint4& p = pieces[block / 2];
    return block % 2 == 0 ? make_uint2(p.x, p.y) : make_uint2(p.z, p.w);
  }
};

// 4-bit weights, f16 activations.
//
// A nibble becomes an f16 without arithmetic by writing exponent bits above it: 1024 + q, or 64 + q
// for a nibble that lies four bits higher. The excess, Σ offset·x of a group, is known beforehand:
// sums start at its negative. The nibbles of a word come apart as columns (0,2), (4,6), (1,3),
// (5,7), the order in which f16 activations are stored.
template <int kGroup, Offset kOffset>
struct Affine4F16 {
  static constexpr Act kAct = Act::f16;
  static constexpr int kStageColumns = 128;
  static constexpr int kGroups = 128 / kGroup;
  static constexpr int kStageBytes = 1024 + kGroups * 64;

  struct Constants {
    float4 sums[kGroups][4];  // of two tokens: −Σ offset·x of both, Σ x of both
    __device__ __forceinline__ float2 column_sums(int group, int pair) const {
      return reinterpret_cast<const float2*>(&sums[group][pair])[1];
    }
  };
  // From column_sums.
  static __device__ __forceinline__ float4 constants_of(const float4& s) {
    return make_float4(-fmaf(1024.0F, s.x, 64.0F * s.z), -fmaf(1024.0F, s.y, 64.0F * s.w),
                       s.x + s.z, s.y + s.w);
  }
  using Input = WideInput<4>;
  using Weights = Affine4Weights<kGroups>;

  // Constants of a stage's inputs: of one group in registers, otherwise in shared memory.
  template <int kTokenTiles>
  struct Prepared {
    Constants* shared;
    float4 own[kTokenTiles];

    __device__ __forceinline__ void prepare(const Input (&input)[kTokenTiles], int lane) {
      if constexpr (kGroups == 1) {
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) own[t] = constants_of(column_sums<4>(input[t].x));
      } else {
        __syncwarp();
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
          for (int g = 0; g < kGroups; ++g) {
            const float4 s = column_sums<kGroup / 32>(&input[t].x[g * kGroup / 32]);
            if (lane < 4) shared[t].sums[g][lane] = constants_of(s);
          }
        }
        __syncwarp();
      }
    }
    __device__ __forceinline__ float4 at(int t, int group, int lane) const {
      if constexpr (kGroups == 1) {
        return own[t];
      } else {
        return shared[t].sums[group][lane % 4];
      }
    }
  };

  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t (&pair)[4]) {
    const uint32_t high = word >> 8;
    pair[0] = and_xor(word, 0x000f000fU, 0x64006400U);
    pair[1] = and_xor(word, 0x00f000f0U, 0x54005400U);
    pair[2] = and_xor(high, 0x000f000fU, 0x64006400U);
    pair[3] = and_xor(high, 0x00f000f0U, 0x54005400U);
  }

  template <int kTokenTiles, int kStages, class InputAt>
  static __device__ __forceinline__ void multiply(const Weights (&weights)[kStages], int lane,
                                                  InputAt input,
                                                  const Prepared<kTokenTiles>* prepared,
                                                  float (&total)[kTokenTiles][4]) {
    // A product waits for the one before of its group: those of two stages take turns.
    constexpr int kTogether = kGroups == 1 ? kStages : 1;
#pragma unroll
    for (int first = 0; first < kStages; first += kTogether) {
      float sum[kTogether][kTokenTiles][4];
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        const int group = block * 32 / kGroup;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int s = first + i;
          uint32_t upper[4], lower[4];
          const uint2 w = weights[s].words(block);
          unpack(w.x, upper);
          unpack(w.y, lower);
#pragma unroll
          for (int t = 0; t < kTokenTiles; ++t) {
            float(&own)[4] = sum[i][t];
            if (block * 32 % kGroup == 0) {
              const float4 start = prepared[s].at(t, group, lane);
              own[0] = own[2] = start.x;
              own[1] = own[3] = start.y;
            }
            const uint4 x = input(s, t, block);
            mma_f16(own, upper[0], lower[0], upper[1], lower[1], x.x, x.y);
            mma_f16(own, upper[2], lower[2], upper[3], lower[3], x.z, x.w);
          }
        }
        if ((block + 1) * 32 % kGroup != 0) continue;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const auto column_sums = [&](int t) {
            const float4 c = prepared[first + i].at(t, group, lane);
            return make_float2(c.z, c.w);
          };
          add_group<kOffset>(weights[first + i].scales[group], sum[i], column_sums, total);
        }
      }
    }
  }
};

// 4-bit weights by 8-bit integers with a scale for each 32 columns (4-bit activations are integers
// in the same range).
template <int kGroup, Offset kOffset>
struct Affine4S8 {
  static constexpr Act kAct = Act::s8;
  static constexpr int kStageColumns = 128;
  static constexpr int kGroups = 128 / kGroup;
  static constexpr int kStageBytes = 1024 + kGroups * 64;

  struct Constants {
    float2 scales[4][4];      // [block] of two tokens
    float2 sums[kGroups][4];  // Σ x of them
    __device__ __forceinline__ float2 column_sums(int group, int pair) const {
      return sums[group][pair];
    }
  };
  using Input = CodeInput;
  using Weights = Affine4Weights<kGroups>;

  template <int kTokenTiles>
  struct Prepared {
    Constants* shared;

    __device__ __forceinline__ void prepare(const Input (&input)[kTokenTiles], int lane) {
      share_scales(input, lane, shared);
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        float2 s[4];
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          s[b] = code_sums(input[t].x[b], shared[t].scales[b][lane % 4]);
        }
        if constexpr (kGroups == 1) {
          s[0] = make_float2((s[0].x + s[1].x) + (s[2].x + s[3].x),
                             (s[0].y + s[1].y) + (s[2].y + s[3].y));
        }
        if (lane >= 4) continue;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) shared[t].sums[g][lane] = s[g];
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
    for (int s = 0; s < kStages; ++s) {
      const Constants* constants = prepared[s].shared;
      float part[kTokenTiles][4];
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        const uint2 w = weights[s].words(block);
        const uint4 a = make_uint4(w.x & 0x0f0f0f0fU, w.y & 0x0f0f0f0fU, w.x >> 4 & 0x0f0f0f0fU,
                                   w.y >> 4 & 0x0f0f0f0fU);
        const bool first = block * 32 % kGroup == 0;
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          const uint2 x = input(s, t, block);
          const float2 scale = constants[t].scales[block][lane % 4];
          int32_t sum[4] = {kMagicBits, kMagicBits, kMagicBits, kMagicBits};
          mma_u8s8(sum, a.x, a.y, a.z, a.w, x.x, x.y);
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            part[t][k] =
                fmaf(k % 2 == 0 ? scale.x : scale.y, from_magic(sum[k]), first ? 0.0F : part[t][k]);
          }
        }
        if ((block + 1) * 32 % kGroup != 0) continue;
        const int group = block * 32 / kGroup;
        add_group<kOffset>(
            weights[s].scales[group], part,
            [&](int t) { return constants[t].column_sums(group, lane % 4); }, total);
      }
    }
  }
};

}  // namespace specquant::cuda
