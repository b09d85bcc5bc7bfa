// Activations on their way into a matrix product: normalized, rounded, and laid out in shared
// memory.
#pragma once

#include "cuda/formats.cuh"
#include "cuda/step.h"

namespace specquant::cuda {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * 32;

// Rows of f32 activations. With `norm` they are multiplied by it and by 1 / rms, which comes from
// sums of squares of 16 columns each.
struct Source {
  const float* data;
  int columns;         // also the distance of rows
  const int32_t* row;  // rows to take; null: in order
  const float* norm;   // null: none
  const float* squares;
  float epsilon;
};

__device__ __forceinline__ int source_row(const Source& source, int token) {
  return source.row == nullptr ? token : __ldg(source.row + token);
}

// 1 / rms of each token's row, to shared memory. The order of the sum does not depend on the number
// of tokens. Needs a block barrier behind it.
__device__ __forceinline__ void inverse_rms(const Source& source, int tokens, float* out) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int count = source.columns / kTileRows;
  for (int token = warp; token < tokens; token += kWarps) {
    const float* squares = source.squares + static_cast<size_t>(source_row(source, token)) * count;
    float sum = 0.0F;
    for (int i = lane; i < count; i += 32) sum += __ldcg(squares + i);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0U, sum, step);
    if (lane == 0) {
      out[token] = 1.0F / sqrtf(sum / static_cast<float>(source.columns) + source.epsilon);
    }
  }
}

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

// Where the parts of a chunk of inputs lie in shared memory.
struct InputLayout {
  int stride;     // bytes of a token's row
  int aux, sums;  // offsets
};

template <class Format, int kTokenTiles>
__device__ __forceinline__ InputLayout input_layout(int tokens, int columns) {
  constexpr int kFixed = fixed_columns(Format::kAct, kTokenTiles);
  if constexpr (kFixed != 0) {
    tokens = 8 * kTokenTiles;
    columns = kFixed;
  }
  InputLayout layout{};
  layout.stride = input_stride(Format::kAct, columns);
  layout.aux = tokens * layout.stride;
  layout.sums = layout.aux;
  if constexpr (Format::kAct == Act::s8) layout.sums += columns / 32 * kTokenTiles * 32;
  return layout;
}

// The widest chunk, in whole 128 columns, that fits in `bytes`.
template <class Format, int kTokenTiles>
__device__ __forceinline__ int chunk_columns(int tokens, int bytes) {
  constexpr Act kAct = Format::kAct;
  if constexpr (fixed_columns(kAct, kTokenTiles) != 0) return fixed_columns(kAct, kTokenTiles);
  // Bytes behind the activations for each 128 columns.
  constexpr int kGroups = Format::kAuxGroup == 0 ? 0 : 128 / Format::kAuxGroup;
  constexpr int kAux = kTokenTiles * (kAct == Act::s8 ? 128 + 32 * kGroups : 64 * kGroups);
  return (bytes - tokens * 128) / (tokens * 128 * act_bytes(kAct) + kAux) * 128;
}

// Columns first ... first + columns (a multiple of 64; of 128 where formats have groups) of all
// tokens, zeros behind the source's last column.
template <class Format, int kTokenTiles>
__device__ __forceinline__ void stage_inputs(const Source& source, int tokens, int first,
                                             int columns, const float* rms, bool four_bits,
                                             const InputLayout& layout, uint8_t* buffer) {
  // A few pieces of eight columns at a time, so that their loads wait together.
  constexpr int kTogether = 4;
  const int octets = columns / 8, items = tokens * octets;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x); base - lane < items;
       base += kTogether * kThreads) {
    float4 loaded[kTogether][2];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int item = base + i * kThreads;
      const int token = item / octets, column = first + (item - token * octets) * 8;
      loaded[i][0] = loaded[i][1] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (item < items && column < source.columns) {
        const auto* from = reinterpret_cast<const float4*>(
            source.data + static_cast<size_t>(source_row(source, token)) * source.columns + column);
        loaded[i][0] = __ldcg(from);
        loaded[i][1] = __ldcg(from + 1);
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int item = base + i * kThreads;
      if (item - lane >= items) break;
      const bool mine = item < items;
      const int token = min(item / octets, tokens - 1);
      const int local = (item - item / octets * octets) * 8;
      const int column = first + local;
      const float4 a = loaded[i][0], b = loaded[i][1];
      float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      if (source.norm != nullptr && mine && column < source.columns) {
        const float4 c = __ldg(reinterpret_cast<const float4*>(source.norm + column));
        const float4 d = __ldg(reinterpret_cast<const float4*>(source.norm + column) + 1);
        const float weights[8] = {c.x, c.y, c.z, c.w, d.x, d.y, d.z, d.w};
        const float inverse = rms[token];
        for (int j = 0; j < 8; ++j) x[j] = x[j] * inverse * weights[j];
      }
      uint8_t* to = buffer + token * layout.stride + local * act_bytes(Format::kAct);
      if constexpr (Format::kAct == Act::s8) {
        const Rounded r = four_bits ? round_to_4_bits(x) : round_to_8_bits(x);
        uint32_t words[2] = {};
        int32_t count = 0;
        for (int i = 0; i < 8; ++i) {
          words[i / 4] |= (static_cast<uint32_t>(r.q[i]) & 0xffU) << (8 * (i % 4));
          count += r.q[i];
        }
        count += __shfl_xor_sync(~0U, count, 1);
        count += __shfl_xor_sync(~0U, count, 2);
        float sum = r.scale * static_cast<float>(count);
        for (int step = 4; step < Format::kAuxGroup / 8; step *= 2) {
          sum += __shfl_xor_sync(~0U, sum, step);
        }
        if (mine) {
          *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
          auto* scales = reinterpret_cast<float*>(buffer + layout.aux);
          auto* sums = reinterpret_cast<float*>(buffer + layout.sums);
          if (local % 32 == 0) scales[local / 32 * (8 * kTokenTiles) + token] = r.scale;
          if (local % Format::kAuxGroup == 0) {
            sums[local / Format::kAuxGroup * (8 * kTokenTiles) + token] = sum;
          }
        }
      } else if constexpr (Format::kAct == Act::f16) {
        __half h[8];
        for (int i = 0; i < 8; ++i) h[i] = __float2half_rn(x[i]);
        const auto pair = [&](int a, int b) {
          const __half2 both = __halves2half2(h[a], h[b]);
          return *reinterpret_cast<const uint32_t*>(&both);
        };
        if (mine) {
          *reinterpret_cast<uint4*>(to) =
              make_uint4(pair(0, 2), pair(4, 6), pair(1, 3), pair(5, 7));
        }
        if constexpr (Format::kAuxGroup != 0) {
          float r[8];
          for (int i = 0; i < 8; ++i) r[i] = __half2float(h[i]);
          const float front = (r[0] + r[1]) + (r[2] + r[3]), back = (r[4] + r[5]) + (r[6] + r[7]);
          float sum = front + back;
          float excess = Format::kOffsetFirst * front + Format::kOffsetLast * back;
          for (int step = 1; step < Format::kAuxGroup / 8; step *= 2) {
            sum += __shfl_xor_sync(~0U, sum, step);
            excess += __shfl_xor_sync(~0U, excess, step);
          }
          if (mine && local % Format::kAuxGroup == 0) {
            auto* aux = reinterpret_cast<float2*>(buffer + layout.aux);
            aux[local / Format::kAuxGroup * (8 * kTokenTiles) + token] = make_float2(-excess, sum);
          }
        }
      } else {
        const auto pair = [&](int a, int b) {
          const __nv_bfloat162 both = __floats2bfloat162_rn(x[a], x[b]);
          return *reinterpret_cast<const uint32_t*>(&both);
        };
        if (mine) {
          *reinterpret_cast<uint4*>(to) =
              make_uint4(pair(0, 2), pair(4, 6), pair(1, 3), pair(5, 7));
        }
      }
    }
  }
}

}  // namespace specquant::cuda
