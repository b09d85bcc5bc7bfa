// Wide products of 4-bit weights (wide_formats.cuh).
#pragma once

#include "cuda/wide_inputs.cuh"

namespace specquant::cuda {

template <int kGroup, Offset kOffset>
struct WideFormat<Affine4F16<kGroup, kOffset>> {
  using Format = Affine4F16<kGroup, kOffset>;
  using Constants = typename Format::Constants;
  template <int kTiles, class Input>
  static __device__ __forceinline__ void prepare(Input& input, int first, int lane) {
#pragma unroll
    for (int g = 0; g < Format::kGroups; ++g) {
      float sum[kTiles][4] = {};
      sums_of_columns<kGroup / 32>(input, g * kGroup / 32, first, lane, sum);
      if (lane >= 4) continue;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        input.constants[first + t].sums[g][lane] =
            Format::constants_of(make_float4(sum[t][0], sum[t][1], sum[t][2], sum[t][3]));
      }
    }
  }

  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(const uint8_t* stage, int lane,
                                                  const StageInput<Format, kTokenTiles>& input,
                                                  float (&total)[kTokenTiles][4]) {
    float sum[kTokenTiles][4];
    uint4 pieces;
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      const int group = block * 32 / kGroup;
      if (block * 32 % kGroup == 0) {
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          const float2 s =
              *reinterpret_cast<const float2*>(&input.constants[t].sums[group][lane % 4]);
          sum[t][0] = sum[t][2] = s.x;
          sum[t][1] = sum[t][3] = s.y;
        }
      }
      uint32_t upper[4], lower[4];
      const uint2 w = words_of_block(stage, lane, block, pieces);
      Format::unpack(w.x, upper);
      Format::unpack(w.y, lower);
      warpgroup_begin();
      warpgroup_mma<Act::f16>(sum, upper[0], lower[0], upper[1], lower[1], input.operand(block));
      warpgroup_mma<Act::f16>(sum, upper[2], lower[2], upper[3], lower[3], input.operand(block, 1));
      warpgroup_commit();
      if ((block + 1) * 32 % kGroup != 0) {
        warpgroup_wait<1>(sum);  // the registers of weights before these are free
        continue;
      }
      warpgroup_wait<0>(sum);
      add_group<kOffset>(stage + 1024 + group * 64, lane, group, sum, input.constants, total);
    }
  }
};

// Products of bytes are taken for 32 tokens at a time, those of a block while those of the block
// before become floats.
template <int kGroup, Offset kOffset>
struct WideFormat<Affine4S8<kGroup, kOffset>> {
  using Format = Affine4S8<kGroup, kOffset>;
  struct Constants {
    float2 sums[Format::kGroups][4];  // of two tokens: Σ x
    __device__ __forceinline__ float2 column_sums(int group, int pair) const {
      return sums[group][pair];
    }
  };
  template <int kTiles, class Input>
  static __device__ __forceinline__ void prepare(Input& input, int first, int lane) {
#pragma unroll
    for (int t = first; t < first + kTiles; ++t) {
      float2 s[4];
#pragma unroll
      for (int b = 0; b < 4; b += 2) {  // octets of two blocks follow one another
        const uint4 x = input.values(b, t, lane);
        s[b] = code_sums(make_uint2(x.x, x.y), input.scale(b, t, lane));
        s[b + 1] = code_sums(make_uint2(x.z, x.w), input.scale(b + 1, t, lane));
      }
      if constexpr (Format::kGroups == 1) {
        s[0] = make_float2((s[0].x + s[1].x) + (s[2].x + s[3].x),
                           (s[0].y + s[1].y) + (s[2].y + s[3].y));
      }
      if (lane >= 4) continue;
#pragma unroll
      for (int g = 0; g < Format::kGroups; ++g) input.constants[t].sums[g][lane] = s[g];
    }
  }

  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(const uint8_t* stage, int lane,
                                                  const StageInput<Format, kTokenTiles>& input,
                                                  float (&total)[kTokenTiles][4]) {
#pragma unroll
    for (int first = 0; first < kTokenTiles; first += 4) {
      int32_t sum[2][4][4];
      float part[4][4];
      uint4 pieces;
#pragma unroll
      for (int block = -1; block < 4; ++block) {
        if (block < 3) {
          const uint2 w = words_of_block(stage, lane, block + 1, pieces);
          const uint4 a = make_uint4(w.x & 0x0f0f0f0fU, w.y & 0x0f0f0f0fU, w.x >> 4 & 0x0f0f0f0fU,
                                     w.y >> 4 & 0x0f0f0f0fU);
          warpgroup_begin();
          warpgroup_mma_bytes<true>(sum[(block + 1) % 2], a, input.operand(block + 1, 0, first));
          warpgroup_commit();
        }
        if (block < 0) continue;
        auto& own = sum[block % 2];
        if (block < 3) {
          warpgroup_wait<1>(own);
        } else {
          warpgroup_wait<0>(own);
        }
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          const float2 scale = input.scale(block, first + t, lane);
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            part[t][k] = fmaf(k % 2 == 0 ? scale.x : scale.y, static_cast<float>(own[t][k]),
                              block * 32 % kGroup == 0 ? 0.0F : part[t][k]);
          }
        }
        if ((block + 1) * 32 % kGroup != 0) continue;
        const int group = block * 32 / kGroup;
        add_group<kOffset>(stage + 1024 + group * 64, lane, group, part, input.constants + first,
                           reinterpret_cast<float(&)[4][4]>(total[first]));
      }
    }
  }
};

}  // namespace specquant::cuda
