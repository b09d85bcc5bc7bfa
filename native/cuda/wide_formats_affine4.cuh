// Wide products of 4-bit weights (wide_formats.cuh).
#pragma once

#include "cuda/wide_inputs.cuh"

namespace specquant::cuda {

template <int kGroup, Offset kOffset>
struct WideFormat<Affine4F16<kGroup, kOffset>> {
  static constexpr int tiles_in_registers(int token_tiles) {
    return token_tiles <= 4 ? token_tiles : kGroup == 128 ? 3 : 0;
  }
  using Format = Affine4F16<kGroup, kOffset>;
  using Constants = typename Format::Constants;
  template <class Input>
  static __device__ __forceinline__ void prepare(Input& input, int lane) {
#pragma unroll
    for (int g = 0; g < Format::kGroups; ++g) {
      const auto put = [&](int t, int r, float first, float second) {
        const float4 c = Format::constants_of(make_float4(first, 0.0F, second, 0.0F));
        auto* to = reinterpret_cast<float*>(&input.constants[t].sums[g][r / 2]) + r % 2;
        to[0] = c.x;
        to[2] = c.z;
      };
      sums_of_columns<kGroup / 32>(input, g * kGroup / 32, lane, put);
    }
  }

  // What is there of a stage before its products begin: its weights, those of the first block also
  // as f16, of rows l/4 and l/4 + 8, and the sums at which they begin.
  struct Block {
    uint32_t upper[4], lower[4];
  };
  template <int kTokenTiles>
  struct Ahead {
    Block first;
    uint4 pieces[2];
    float sum[kTokenTiles][4];
  };
  static __device__ __forceinline__ void read(const uint8_t* stage, int lane, uint4 (&pieces)[2]) {
    pieces[0] = *reinterpret_cast<const uint4*>(stage + lane * 16);
    pieces[1] = *reinterpret_cast<const uint4*>(stage + 512 + lane * 16);
  }
  static __device__ __forceinline__ Block unpack(const uint4 (&pieces)[2], int block) {
    const uint4& p = pieces[block / 2];
    Block result;
    Format::unpack(block % 2 == 0 ? p.x : p.z, result.upper);
    Format::unpack(block % 2 == 0 ? p.y : p.w, result.lower);
    return result;
  }
  template <int kTokenTiles>
  static __device__ __forceinline__ void start_sums(const StageInput<Format, kTokenTiles>& input,
                                                    int group, int lane,
                                                    float (&sum)[kTokenTiles][4]) {
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
      const float2 s = *reinterpret_cast<const float2*>(&input.constants[t].sums[group][lane % 4]);
      sum[t][0] = sum[t][2] = s.x;
      sum[t][1] = sum[t][3] = s.y;
    }
  }
  template <int kTokenTiles>
  static __device__ __forceinline__ void begin(const WideStage<Format, kTokenTiles>& stage,
                                               int lane, Ahead<kTokenTiles>& ahead) {
    read(stage.weights, lane, ahead.pieces);
    ahead.first = unpack(ahead.pieces, 0);
    start_sums(*stage.input, 0, lane, ahead.sum);
  }

  template <int kTokenTiles, class Next>
  static __device__ __forceinline__ void multiply(const WideStage<Format, kTokenTiles>& stage,
                                                  int lane, Ahead<kTokenTiles>& ahead,
                                                  float (&total)[kTokenTiles][4], Next next) {
    const auto& input = *stage.input;
    WideStage<Format, kTokenTiles> following = stage;
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      const Block w = block == 0 ? ahead.first : unpack(ahead.pieces, block);
      warpgroup_begin();
      warpgroup_mma<Act::f16>(ahead.sum, w.upper[0], w.lower[0], w.upper[1], w.lower[1],
                              input.operand(block));
      warpgroup_mma<Act::f16>(ahead.sum, w.upper[2], w.lower[2], w.upper[3], w.lower[3],
                              input.operand(block, 1));
      warpgroup_commit();
      if ((block + 1) * 32 % kGroup != 0) {
        warpgroup_wait<1>(ahead.sum);  // the registers of weights before these are free
        continue;
      }
      if (block == 3) {
        following = next();
        read(following.weights, lane, ahead.pieces);
      }
      const int group = block * 32 / kGroup;
      warpgroup_wait<0>(ahead.sum);
      add_group<kOffset>(stage.weights + 1024 + group * 64, lane, group, ahead.sum, input.constants,
                         total);
      start_sums(*following.input, block == 3 ? 0 : group + 1, lane, ahead.sum);
    }
    ahead.first = unpack(ahead.pieces, 0);
  }
};

// Products of bytes are taken for 32 tokens at a time, those of a block while those of the block
// before become floats.
template <int kGroup, Offset kOffset>
struct WideFormat<Affine4S8<kGroup, kOffset>> {
  static constexpr int tiles_in_registers(int) { return 0; }
  using Format = Affine4S8<kGroup, kOffset>;
  struct Constants {
    float2 sums[Format::kGroups][4];  // of two tokens: Σ x
    __device__ __forceinline__ float2 column_sums(int group, int pair) const {
      return sums[group][pair];
    }
  };
  template <class Input>
  static __device__ __forceinline__ void prepare(Input& input, int lane) {
#pragma unroll 1
    for (int token = lane; token < Input::kRows; token += 32) {
      float s[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        int sum = 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 x = input.codes(b, half, token);
          for (const uint32_t four : {x.x, x.y, x.z, x.w}) {
            sum = __dp4a(static_cast<int>(four), 0x01010101, sum);
          }
        }
        s[b] = input.scales[b][token] * static_cast<float>(sum);
      }
      if constexpr (Format::kGroups == 1) s[0] = (s[0] + s[1]) + (s[2] + s[3]);
#pragma unroll
      for (int g = 0; g < Format::kGroups; ++g) {
        auto* to = reinterpret_cast<float*>(&input.constants[token / 8].sums[g][token % 8 / 2]);
        to[token % 2] = s[g];
      }
    }
  }

  template <int kTokenTiles>
  struct Ahead {};

  template <int kTokenTiles, class Next>
  static __device__ __forceinline__ void multiply(const WideStage<Format, kTokenTiles>& stage,
                                                  int lane, Ahead<kTokenTiles>&,
                                                  float (&total)[kTokenTiles][4], Next next) {
    const auto& input = *stage.input;
#pragma unroll
    for (int first = 0; first < kTokenTiles; first += 4) {
      int32_t sum[2][4][4];
      float part[4][4];
      uint4 pieces;
#pragma unroll
      for (int block = -1; block < 4; ++block) {
        if (block < 3) {
          const uint2 w = words_of_block(stage.weights, lane, block + 1, pieces);
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
        add_group<kOffset>(stage.weights + 1024 + group * 64, lane, group, part,
                           input.constants + first, reinterpret_cast<float(&)[4][4]>(total[first]));
      }
    }
    next();
  }
};

}  // namespace specquant::cuda
