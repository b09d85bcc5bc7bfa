// How weights lie in memory, and the product of one stage of them with activations.
//
// Weights are the A operand of the tensor cores: a tile is 16 output rows, a stage of a tile is 128
// columns (64 for 16-bit weights), contiguous in memory. Tokens are the operand's N, eight to a
// token tile. In each block of 32 columns lane l holds rows l/4 and l/4 + 8 and the eight columns
// 8·(l%4) ..., of weights and of activations alike, so that both are loaded in one piece; the order
// of columns inside a product does not matter as long as both operands agree.
//
// f16 activations are stored in the order [0,2,4,6,1,3,5,7] inside each eight columns, because the
// nibbles of a word come apart as columns (0,2), (4,6), (1,3), (5,7).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/ptx.cuh"

namespace specquant::cuda {

enum class Act { f16, bf16, s8 };

__host__ __device__ constexpr int act_bytes(Act act) { return act == Act::s8 ? 1 : 2; }

// Columns of activations that lie in shared memory at a time: for few tokens as many as fit (0),
// for many a fixed number, so that addresses are constants.
__host__ __device__ constexpr int fixed_columns(Act act, int token_tiles) {
  return token_tiles < 8 ? 0 : act == Act::s8 ? 1024 : 512;
}
// Bytes from one token's columns to the next: an odd number of quarter bank rows (half for 16 bits)
// keeps neighbouring tokens in different banks.
__host__ __device__ constexpr int input_stride(Act act, int columns) {
  return (columns * act_bytes(act) + 127) / 128 * 128 + 32 * act_bytes(act);
}

// A lane's view of activations in shared memory, from its columns of the first block.
template <Act kAct, int kTokenTiles>
struct Inputs {
  static constexpr bool kFixed = fixed_columns(kAct, kTokenTiles) != 0;
  const uint8_t* start[kFixed ? 1 : kTokenTiles];
  const float* aux;  // what the format's `multiply` says
  const float* sums;

  __device__ __forceinline__ const uint8_t* at(int token_tile, int column) const {
    constexpr int kTile = 8 * input_stride(kAct, fixed_columns(kAct, kTokenTiles));
    return (kFixed ? start[0] + token_tile * kTile : start[token_tile]) + column * act_bytes(kAct);
  }
};

// What every sum of 4-bit weights by f16 activations starts with and ends with.
//
// A nibble becomes an f16 without arithmetic by writing exponent bits above it: 1024 + q, or 64 + q
// for a nibble that lies four bits higher. The excess, Σ offset·x, is known beforehand: sums start
// at its negative. `aux` is [group][token]{−Σ offset·x, Σ x}.
template <int kGroup>
struct Affine4F16 {
  static constexpr Act kAct = Act::f16;
  static constexpr int kStageColumns = 128;
  static constexpr int kStageBytes = 1024 + 128 / kGroup * 64;
  static constexpr int kAuxGroup = kGroup;
  static constexpr float kOffsetFirst = 1024.0F, kOffsetLast = 64.0F;  // columns 0..3 and 4..7

  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t (&pair)[4]) {
    const uint32_t high = word >> 8;
    pair[0] = and_xor(word, 0x000f000fU, 0x64006400U);
    pair[1] = and_xor(word, 0x00f000f0U, 0x54005400U);
    pair[2] = and_xor(high, 0x000f000fU, 0x64006400U);
    pair[3] = and_xor(high, 0x00f000f0U, 0x54005400U);
  }

  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(const uint8_t* stage, int lane, int column,
                                                  const Inputs<kAct, kTokenTiles>& in,
                                                  float (&total)[kTokenTiles][4]) {
    float sum[kTokenTiles][4];
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      const uint4 w = *reinterpret_cast<const uint4*>(stage + chunk * 512 + lane * 16);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int block = chunk * 2 + half;
        const float* aux =
            in.aux + (column + block * 32) / kGroup * (16 * kTokenTiles) + lane % 4 * 4;
        if (block * 32 % kGroup == 0) {
#pragma unroll
          for (int t = 0; t < kTokenTiles; ++t) {
            const float4 start = *reinterpret_cast<const float4*>(aux + t * 16);
            sum[t][0] = sum[t][2] = start.x;
            sum[t][1] = sum[t][3] = start.z;
          }
        }
        uint32_t upper[4], lower[4];
        unpack(half == 0 ? w.x : w.z, upper);
        unpack(half == 0 ? w.y : w.w, lower);
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          const uint4 x = *reinterpret_cast<const uint4*>(in.at(t, column + block * 32));
          mma_f16(sum[t], upper[0], lower[0], upper[1], lower[1], x.x, x.y);
          mma_f16(sum[t], upper[2], lower[2], upper[3], lower[3], x.z, x.w);
        }
        if ((block + 1) * 32 % kGroup == 0) {
          const auto* scales =
              reinterpret_cast<const __half2*>(stage + 1024 + block * 32 / kGroup * 64);
          const float2 r0 = __half22float2(scales[lane / 4]);
          const float2 r1 = __half22float2(scales[lane / 4 + 8]);
#pragma unroll
          for (int t = 0; t < kTokenTiles; ++t) {
            const float4 end = *reinterpret_cast<const float4*>(aux + t * 16);
            total[t][0] = fmaf(r0.x, sum[t][0], fmaf(r0.y, end.y, total[t][0]));
            total[t][1] = fmaf(r0.x, sum[t][1], fmaf(r0.y, end.w, total[t][1]));
            total[t][2] = fmaf(r1.x, sum[t][2], fmaf(r1.y, end.y, total[t][2]));
            total[t][3] = fmaf(r1.x, sum[t][3], fmaf(r1.y, end.w, total[t][3]));
          }
        }
      }
    }
  }
};

// Integer sums start at the bits of 1.5·2^23: read as a float they are that number plus the sum, so
// that one subtraction converts them (exact below 2^22).
constexpr int32_t kMagicBits = 0x4B400000;
__device__ __forceinline__ float from_magic(int32_t bits) {
  return __int_as_float(bits) - 12582912.0F;
}

// 4-bit weights by 8-bit integers with a scale for each 32 columns (4-bit activations are integers
// in the same range). `aux` is [block of 32][token] the scale, `sums` [group][token] Σ x.
template <int kGroup>
struct Affine4S8 {
  static constexpr Act kAct = Act::s8;
  static constexpr int kStageColumns = 128;
  static constexpr int kStageBytes = Affine4F16<kGroup>::kStageBytes;
  static constexpr int kAuxGroup = kGroup;

  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(const uint8_t* stage, int lane, int column,
                                                  const Inputs<kAct, kTokenTiles>& in,
                                                  float (&total)[kTokenTiles][4]) {
    float part[kTokenTiles][4];
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      const uint4 w = *reinterpret_cast<const uint4*>(stage + chunk * 512 + lane * 16);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int block = chunk * 2 + half;
        const uint32_t upper = half == 0 ? w.x : w.z, lower = half == 0 ? w.y : w.w;
        const uint32_t a0 = upper & 0x0f0f0f0fU, a2 = upper >> 4 & 0x0f0f0f0fU;
        const uint32_t a1 = lower & 0x0f0f0f0fU, a3 = lower >> 4 & 0x0f0f0f0fU;
        const float* scales = in.aux + (column / 32 + block) * (8 * kTokenTiles) + lane % 4 * 2;
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          const uint2 x = *reinterpret_cast<const uint2*>(in.at(t, column + block * 32));
          int32_t sum[4] = {kMagicBits, kMagicBits, kMagicBits, kMagicBits};
          mma_u8s8(sum, a0, a1, a2, a3, x.x, x.y);
          const float2 scale = *reinterpret_cast<const float2*>(scales + t * 8);
          const bool first = block * 32 % kGroup == 0;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            part[t][i] =
                fmaf(i % 2 == 0 ? scale.x : scale.y, from_magic(sum[i]), first ? 0.0F : part[t][i]);
          }
        }
        if ((block + 1) * 32 % kGroup == 0) {
          const auto* weight_scales =
              reinterpret_cast<const __half2*>(stage + 1024 + block * 32 / kGroup * 64);
          const float2 r0 = __half22float2(weight_scales[lane / 4]);
          const float2 r1 = __half22float2(weight_scales[lane / 4 + 8]);
          const float* sums =
              in.sums + (column + block * 32) / kGroup * (8 * kTokenTiles) + lane % 4 * 2;
#pragma unroll
          for (int t = 0; t < kTokenTiles; ++t) {
            const float2 s = *reinterpret_cast<const float2*>(sums + t * 8);
            total[t][0] = fmaf(r0.x, part[t][0], fmaf(r0.y, s.x, total[t][0]));
            total[t][1] = fmaf(r0.x, part[t][1], fmaf(r0.y, s.y, total[t][1]));
            total[t][2] = fmaf(r1.x, part[t][2], fmaf(r1.y, s.x, total[t][2]));
            total[t][3] = fmaf(r1.x, part[t][3], fmaf(r1.y, s.y, total[t][3]));
          }
        }
      }
    }
  }
};

// 8-bit weights, a scale for each row and 32 columns. For each block 16 bytes a lane: rows l/4 and
// l/4 + 8 of columns 0..3, then of columns 4..7; behind the four blocks their scales.
struct Affine8S8 {
  static constexpr Act kAct = Act::s8;
  static constexpr int kStageColumns = 128;
  static constexpr int kStageBytes = 2048 + 4 * 32;
  static constexpr int kAuxGroup = 32;

  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(const uint8_t* stage, int lane, int column,
                                                  const Inputs<kAct, kTokenTiles>& in,
                                                  float (&total)[kTokenTiles][4]) {
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      const uint4 w = *reinterpret_cast<const uint4*>(stage + block * 512 + lane * 16);
      const auto* weight_scales = reinterpret_cast<const __half*>(stage + 2048 + block * 32);
      const float r0 = __half2float(weight_scales[lane / 4]);
      const float r1 = __half2float(weight_scales[lane / 4 + 8]);
      const float* scales = in.aux + (column / 32 + block) * (8 * kTokenTiles) + lane % 4 * 2;
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        const uint2 x = *reinterpret_cast<const uint2*>(in.at(t, column + block * 32));
        int32_t sum[4] = {kMagicBits, kMagicBits, kMagicBits, kMagicBits};
        mma_s8(sum, w.x, w.y, w.z, w.w, x.x, x.y);
        const float2 scale = *reinterpret_cast<const float2*>(scales + t * 8);
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
  static constexpr int kAuxGroup = 32;
  static constexpr float kOffsetFirst = 1152.0F, kOffsetLast = 1152.0F;

  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(const uint8_t* stage, int lane, int column,
                                                  const Inputs<kAct, kTokenTiles>& in,
                                                  float (&total)[kTokenTiles][4]) {
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      const uint4 w = *reinterpret_cast<const uint4*>(stage + block * 512 + lane * 16);
      const auto* weight_scales = reinterpret_cast<const __half*>(stage + 2048 + block * 32);
      const float r0 = __half2float(weight_scales[lane / 4]);
      const float r1 = __half2float(weight_scales[lane / 4 + 8]);
      uint32_t upper[4], lower[4];
      unpack(w.x, w.z, upper);
      unpack(w.y, w.w, lower);
      const float* aux = in.aux + (column / 32 + block) * (16 * kTokenTiles) + lane % 4 * 4;
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        const float4 start = *reinterpret_cast<const float4*>(aux + t * 16);
        const uint4 x = *reinterpret_cast<const uint4*>(in.at(t, column + block * 32));
        float sum[4] = {start.x, start.z, start.x, start.z};
        mma_f16(sum, upper[0], lower[0], upper[1], lower[1], x.x, x.y);
        mma_f16(sum, upper[2], lower[2], upper[3], lower[3], x.z, x.w);
        total[t][0] = fmaf(r0, sum[0], total[t][0]);
        total[t][1] = fmaf(r0, sum[1], total[t][1]);
        total[t][2] = fmaf(r1, sum[2], total[t][2]);
        total[t][3] = fmaf(r1, sum[3], total[t][3]);
      }
    }
  }

 private:
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

// 16-bit weights: for each block 16 bytes a lane for rows 0..7, then for rows 8..15, in the order
// of f16 activations.
template <Act kType>
struct Float16 {
  static constexpr Act kAct = kType;
  static constexpr int kStageColumns = 64;
  static constexpr int kStageBytes = 2048;
  static constexpr int kAuxGroup = 0;

  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(const uint8_t* stage, int lane, int column,
                                                  const Inputs<kAct, kTokenTiles>& in,
                                                  float (&total)[kTokenTiles][4]) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const uint4 upper = *reinterpret_cast<const uint4*>(stage + block * 1024 + lane * 16);
      const uint4 lower = *reinterpret_cast<const uint4*>(stage + block * 1024 + 512 + lane * 16);
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        const uint4 x = *reinterpret_cast<const uint4*>(in.at(t, column + block * 32));
        if constexpr (kType == Act::f16) {
          mma_f16(total[t], upper.x, lower.x, upper.y, lower.y, x.x, x.y);
          mma_f16(total[t], upper.z, lower.z, upper.w, lower.w, x.z, x.w);
        } else {
          mma_bf16(total[t], upper.x, lower.x, upper.y, lower.y, x.x, x.y);
          mma_bf16(total[t], upper.z, lower.z, upper.w, lower.w, x.z, x.w);
        }
      }
    }
  }
};

}  // namespace specquant::cuda
