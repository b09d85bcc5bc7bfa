// 8- and 4-bit codes of activations, made by the whole grid for all blocks to read.
#pragma once

#include "cuda/activations.cuh"

namespace specquant::cuda {

// The rounding of eight columns of a row; groups of 32 columns lie in four neighbouring lanes.
struct Rounded {
  int32_t q[8];
  float scale;
};

__device__ __forceinline__ Rounded round_to_8_bits(const float (&x)[8]) {
  float largest = 0.0F;
  for (const float value : x) largest = fmaxf(largest, fabsf(value));
  largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, 2));
  Rounded r;
  r.scale = largest / 127.0F;
  if (r.scale < 1.17549435e-38F) r.scale = 0.0F;
  const float inverse = r.scale == 0.0F ? 0.0F : 1.0F / r.scale;
  for (int i = 0; i < 8; ++i) r.q[i] = __float2int_rn(x[i] * inverse);
  return r;
}

// Codes 0..15 over the group's range, with a zero point in eighths of a step: as integers, eight
// times the code less the zero point, they fit in a signed byte.
__device__ __forceinline__ Rounded round_to_4_bits(const float (&x)[8]) {
  float low = 0.0F, high = 0.0F;
  for (const float value : x) {
    low = fminf(low, value);
    high = fmaxf(high, value);
  }
  for (int step = 1; step <= 2; ++step) {
    low = fminf(low, __shfl_xor_sync(~0U, low, step));
    high = fmaxf(high, __shfl_xor_sync(~0U, high, step));
  }
  const float level = high / 15.0F - low / 15.0F;
  Rounded r;
  r.scale = level * 0.125F;
  if (r.scale < 1.17549435e-38F) {
    r.scale = 0.0F;
    for (int32_t& q : r.q) q = 0;
    return r;
  }
  const float inverse = 1.0F / level;
  const float offset = rintf(fminf(fmaxf(-low * 8.0F * inverse, 0.0F), 120.0F));
  for (int i = 0; i < 8; ++i) {
    const float code = rintf(fminf(fmaxf(fmaf(x[i], inverse, offset * 0.125F), 0.0F), 15.0F));
    r.q[i] = static_cast<int32_t>(8.0F * code - offset);
  }
  return r;
}

// Codes and scales of all rows, in the order of activations.cuh. `columns` is a multiple of 128, so
// that blocks of 32 columns lie whole in a warp; blocks of threads take turns.
__device__ __forceinline__ void quantize(const uint16_t* from, int rows, int columns,
                                         bool four_bits, int8_t* codes, float* scales) {
  const int items = rows * columns / 8;  // eight columns of a row, block after block
  for (int item = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x) % 32 +
                  static_cast<int>(threadIdx.x) / 32 * 32 * static_cast<int>(gridDim.x);
       item - static_cast<int>(threadIdx.x) % 32 < items;
       item += static_cast<int>(gridDim.x * blockDim.x)) {
    const bool mine = item < items;
    const int place = item / 4 / rows * kPassRows + item / 4 % rows;  // block and row
    const int octet = place * 4 + item % 4;
    uint4 v{};
    if (mine) v = __ldcg(reinterpret_cast<const uint4*>(from) + octet);
    const auto pair = [](uint32_t bits) {
      return __half22float2(*reinterpret_cast<__half2*>(&bits));
    };
    const float2 a = pair(v.x), b = pair(v.y), c = pair(v.z), d = pair(v.w);
    const float x[8] = {a.x, c.x, a.y, c.y, b.x, d.x, b.y, d.y};
    const Rounded r = four_bits ? round_to_4_bits(x) : round_to_8_bits(x);
    uint32_t words[2] = {};
    for (int i = 0; i < 8; ++i) {
      words[i / 4] |= (static_cast<uint32_t>(r.q[i]) & 0xffU) << (8 * (i % 4));
    }
    if (!mine) continue;
    __stcg(reinterpret_cast<uint2*>(codes) + octet, make_uint2(words[0], words[1]));
    if (item % 4 == 0) __stcg(scales + place, r.scale);
  }
}

}  // namespace specquant::cuda
