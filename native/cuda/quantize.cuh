// 8- and 4-bit codes of activations, made by the whole grid for all blocks to read.
#pragma once

#include "cuda/handover.cuh"

namespace specquant::cuda {

// The rounding of a lane's values. A group of 32 columns of a row lies in lanes that differ in the
// bits kFirstBit to kLastBit of their numbers.
template <int kValues>
struct Rounded {
  int32_t q[kValues];
  float scale;
};

template <int kFirstBit, int kLastBit, int kValues>
__device__ __forceinline__ Rounded<kValues> round_to_8_bits(const float (&x)[kValues]) {
  float largest = 0.0F;
  for (const float value : x) largest = fmaxf(largest, fabsf(value));
  for (int bit = kFirstBit; bit <= kLastBit; bit *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, bit));
  }
  Rounded<kValues> r;
  r.scale = largest / 127.0F;
  if (r.scale < 1.17549435e-38F) r.scale = 0.0F;
  const float inverse = r.scale == 0.0F ? 0.0F : 1.0F / r.scale;
  for (int i = 0; i < kValues; ++i) r.q[i] = __float2int_rn(x[i] * inverse);
  return r;
}

// Codes 0..15 over the group's range, with a zero point in eighths of a step: as integers, eight
// times the code less the zero point, they fit in a signed byte.
template <int kFirstBit, int kLastBit, int kValues>
__device__ __forceinline__ Rounded<kValues> round_to_4_bits(const float (&x)[kValues]) {
  float low = 0.0F, high = 0.0F;
  for (const float value : x) {
    low = fminf(low, value);
    high = fmaxf(high, value);
  }
  for (int bit = kFirstBit; bit <= kLastBit; bit *= 2) {
    low = fminf(low, __shfl_xor_sync(~0U, low, bit));
    high = fmaxf(high, __shfl_xor_sync(~0U, high, bit));
  }
  const float level = high / 15.0F - low / 15.0F;
  Rounded<kValues> r;
  r.scale = level * 0.125F;
  if (r.scale < 1.17549435e-38F) {
    r.scale = 0.0F;
    for (int32_t& q : r.q) q = 0;
    return r;
  }
  const float inverse = 1.0F / level;
  const float offset = rintf(fminf(fmaxf(-low * 8.0F * inverse, 0.0F), 120.0F));
  for (int i = 0; i < kValues; ++i) {
    const float code = rintf(fminf(fmaxf(fmaf(x[i], inverse, offset * 0.125F), 0.0F), 15.0F));
    r.q[i] = static_cast<int32_t>(8.0F * code - offset);
  }
  return r;
}

// Where a kernel of a wide pass leaves codes of what it computes, for the next product.
struct CodesOut {
  Codes to;
  bool four_bits;
  int wide_rows;
};

// Codes of a row's 32 columns from `column` on, of which a lane has kValues, every eighth from
// `first` on; lanes as for Rounded. `there`: whether the lane's row exists.
template <int kFirstBit, int kLastBit, int kValues>
__device__ __forceinline__ void put_codes(const CodesOut& out, const float (&x)[kValues], int row,
                                          int column, int first, bool there) {
  const Rounded<kValues> r = out.four_bits ? round_to_4_bits<kFirstBit, kLastBit>(x)
                                           : round_to_8_bits<kFirstBit, kLastBit>(x);
  if (!there) return;
  const int block = column / 32;
  int8_t* to = out.to.codes + static_cast<size_t>(block) * (kPassRows * 32) +
               (first % 8 / 4 * out.wide_rows + row) * 16 + first / 8 * 4 + first % 4;
#pragma unroll
  for (int i = 0; i < kValues; ++i) __stcg(to + i * 4, static_cast<int8_t>(r.q[i]));
  if (first == 0) __stcg(out.to.scales + block * kPassRows + row, r.scale);
}

// Codes and scales of all rows, in the order of activations.cuh. `columns` is a multiple of 128, so
// that blocks of 32 columns lie whole in a warp; blocks of threads take turns.
__device__ __forceinline__ void quantize(const uint16_t* from, int rows, int columns,
                                         bool four_bits, int8_t* codes, float* scales,
                                         int wide_rows) {
  const int items = rows * columns / 8;  // eight columns of a row, block after block
  for (int item = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x) % 32 +
                  static_cast<int>(threadIdx.x) / 32 * 32 * static_cast<int>(gridDim.x);
       item - static_cast<int>(threadIdx.x) % 32 < items;
       item += static_cast<int>(gridDim.x * blockDim.x)) {
    const bool mine = item < items;
    const int block = item / 4 / rows, row = item / 4 % rows, eight = item % 4;
    const int octet = (block * kPassRows + row) * 4 + eight;
    // Of a wide pass: the first of the eight's four pieces, or of two.
    const int piece = block * kPassRows * 16 + row * 4 + eight, next = wide_rows * 4;
    uint4 v{};
    if (mine && wide_rows == 0) {
      // Of a narrow pass, which hands them over (handover.cuh).
      do {
        v = load_relaxed_piece(reinterpret_cast<const uint4*>(from) + octet);
      } while (!written(v));
    } else if (mine) {
      const auto* pieces = reinterpret_cast<const uint32_t*>(from) + piece;
      v = make_uint4(__ldcg(pieces), __ldcg(pieces + next), __ldcg(pieces + 2 * next),
                     __ldcg(pieces + 3 * next));
    }
    const auto pair = [](uint32_t bits) {
      return __half22float2(*reinterpret_cast<__half2*>(&bits));
    };
    const float2 a = pair(v.x), b = pair(v.y), c = pair(v.z), d = pair(v.w);
    const float x[8] = {a.x, c.x, a.y, c.y, b.x, d.x, b.y, d.y};
    const Rounded<8> r = four_bits ? round_to_4_bits<1, 2>(x) : round_to_8_bits<1, 2>(x);
    uint32_t words[2] = {};
    for (int i = 0; i < 8; ++i) {
      words[i / 4] |= (static_cast<uint32_t>(r.q[i]) & 0xffU) << (8 * (i % 4));
    }
    if (!mine) continue;
    if (wide_rows == 0) {
      __stcg(reinterpret_cast<uint2*>(codes) + octet, make_uint2(words[0], words[1]));
    } else {
      auto* pieces = reinterpret_cast<uint32_t*>(codes) + block * kPassRows * 8 + row * 4 + eight;
      __stcg(pieces, words[0]);
      __stcg(pieces + next, words[1]);
    }
    if (eight == 0) __stcg(scales + block * kPassRows + row, r.scale);
  }
}

}  // namespace specquant::cuda
