// Attention of a group of rows over the KV cache: one block of threads for a group and KV head.
//
// The query heads of a KV head and the rows of the group fill the 16 rows of a tensor-core tile.
// A warp sums 64 dimensions of the values, so that its sums stay in registers: for heads of 128,
// pairs of warps compute the same scores. Positions are cut into splits of 64 in logical order,
// dealt out in turn to the warps (or pairs), which take theirs in order with a running maximum; the
// warps' results are added in order. So a row's sums depend on nothing but its own length: splits
// that it does not see change no bit of them.
#pragma once

#include "cuda/inputs.cuh"

namespace specquant::cuda {

constexpr int kSplit = 64;
constexpr int kOutStride = 68;  // floats of a row of 64 dimensions, against bank conflicts

constexpr int kQueryStride = 272;  // bytes of a query of up to 128 dimensions, likewise

constexpr int attention_shared_bytes() {
  return kWarps * 16 * kOutStride * 4 + 2 * kWarps * 16 * 4 + kSplit * 4 + 16 * kQueryStride;
}

template <int kHeadDim>
__device__ __forceinline__ void attend(const StepArgs& a, int layer, int unit, uint8_t* shared) {
  constexpr int kBlocks = kHeadDim / 32;
  constexpr int kHalves = kHeadDim / 64, kTeams = kWarps / kHalves;
  constexpr float kNothing = -INFINITY;
  auto* outs = reinterpret_cast<float*>(shared);    // [warp][row][kOutStride]
  float* maxima = outs + kWarps * 16 * kOutStride;  // [warp][row]
  float* totals = maxima + kWarps * 16;
  auto* tail = reinterpret_cast<int32_t*>(totals + kWarps * 16);  // cache entries behind the prefix
  auto* queries = reinterpret_cast<uint8_t*>(tail + kSplit);      // [row] f16
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int c = lane % 4;
  const int team = warp / kHalves, dimensions = warp % kHalves * 64;  // of this warp

  const RowGroup group = a.group[unit / a.kv_heads];
  const int kv_head = unit % a.kv_heads;
  const int heads = a.heads / a.kv_heads;
  const StepRow first = a.row[group.first];
  const StepRow last = a.row[group.first + group.count - 1];
  const int length = last.visible;
  const bool tree = first.ancestors != 0;
  const int width = a.heads * kHeadDim;

  __syncthreads();  // the shared memory may still be read for the unit before
  if (tree && threadIdx.x < 64 && (first.ancestors >> threadIdx.x & 1) != 0) {
    tail[__popcll(first.ancestors & ((uint64_t{1} << threadIdx.x) - 1))] =
        first.prefix + static_cast<int>(threadIdx.x);
  }
  const int used = group.count * heads;
  for (int i = static_cast<int>(threadIdx.x); i < used * (kHeadDim / 4); i += kThreads) {
    const int index = i / (kHeadDim / 4), dimension = i % (kHeadDim / 4) * 4;
    const float4 x = __ldcg(reinterpret_cast<const float4*>(
        a.query + static_cast<size_t>(group.first + index / heads) * width +
        (kv_head * heads + index % heads) * kHeadDim + dimension));
    auto* to = reinterpret_cast<__half2*>(queries + index * kQueryStride + dimension * 2);
    to[0] = __floats2half2_rn(x.x, x.y);
    to[1] = __floats2half2_rn(x.z, x.w);
  }
  __syncthreads();

  // The lane's two rows of the tile: a row of the group and one of its heads each. Rows that are
  // not there stand for the last one.
  int visible[2];
  const uint8_t* query[2];
  for (int half = 0; half < 2; ++half) {
    const int index = min(lane / 4 + 8 * half, used - 1);
    visible[half] = a.row[group.first + index / heads].visible;
    query[half] = queries + index * kQueryStride + c * 16;
  }

  const size_t head_start =
      ((static_cast<size_t>(first.slot) * a.layers + layer) * a.kv_heads + kv_head) *
      a.max_positions * kHeadDim;
  const __half* keys = a.keys + head_start;
  const __half* values = a.values + head_start;
  const float scale = rsqrtf(static_cast<float>(kHeadDim)) * 1.44269504F;  // to powers of two

  float maximum[2] = {kNothing, kNothing}, total[2] = {};
  float out[8][4] = {};
  const auto gathered = [&](const __half* value, int position) {
    __half one[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int entry = min(position + i, length - 1);
      one[i] = __ldcg(value + (entry < first.prefix ? entry : tail[entry - first.prefix]));
    }
    return *reinterpret_cast<const uint4*>(one);
  };
#pragma unroll 1
  for (int split = team; split * kSplit < length; split += kTeams) {
    // Column 2j + i of score tile t is position 8j + 2t + i of its 32, so that a lane ends with the
    // scores of eight neighbouring positions, the operand that the values need.
    float score[2][4][4] = {};
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const __half* key[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const int column = lane / 4;
        const int position = split * kSplit + part * 32 + column / 2 * 8 + t * 2 + column % 2;
        int entry = min(position, length - 1);
        if (tree && entry >= first.prefix) entry = tail[entry - first.prefix];
        key[t] = keys + static_cast<size_t>(entry) * kHeadDim + c * 8;
      }
#pragma unroll
      for (int pair = 0; pair < kBlocks; pair += 2) {  // loads of two blocks wait together
        uint4 k[2][4];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          k[i / 4][i % 4] =
              __ldcg(reinterpret_cast<const uint4*>(key[i % 4] + (pair + i / 4) * 32));
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint4 upper = *reinterpret_cast<const uint4*>(query[0] + (pair + i) * 64);
          const uint4 lower = *reinterpret_cast<const uint4*>(query[1] + (pair + i) * 64);
#pragma unroll
          for (int t = 0; t < 4; ++t) {
            mma_f16(score[part][t], upper.x, lower.x, upper.y, lower.y, k[i][t].x, k[i][t].y);
            mma_f16(score[part][t], upper.z, lower.z, upper.w, lower.w, k[i][t].z, k[i][t].w);
          }
        }
      }
    }
    float highest[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int position = split * kSplit + part * 32 + c * 8 + t * 2 + i % 2;
          float& s = score[part][t][i];
          s = position < visible[i / 2] ? s * scale : kNothing;
          highest[i / 2] = fmaxf(highest[i / 2], s);
        }
      }
    }
    uint32_t weight[2][4][2];  // pairs of f16: [part][t][row half]
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& high = highest[half];
      high = fmaxf(high, __shfl_xor_sync(~0U, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0U, high, 2));
      const float base = high == kNothing ? 0.0F : high;
      const float keep = exp2f(maximum[half] - base);  // 0 at first
      float sum = 0.0F;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          const float p = exp2f(score[part][t][2 * half] - base);
          const float q = exp2f(score[part][t][2 * half + 1] - base);
          sum += p + q;
          const __half2 both = __floats2half2_rn(p, q);
          weight[part][t][half] = *reinterpret_cast<const uint32_t*>(&both);
        }
      }
      sum += __shfl_xor_sync(~0U, sum, 1);
      sum += __shfl_xor_sync(~0U, sum, 2);
      total[half] = total[half] * keep + sum;
      maximum[half] = high;
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        out[d][2 * half] *= keep;
        out[d][2 * half + 1] *= keep;
      }
    }
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int position = split * kSplit + part * 32 + c * 8;
      const bool gather = tree && position + 8 > first.prefix;
      uint4 v[8];
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        const __half* value =
            values + static_cast<size_t>(dimensions + d * 8 + lane / 4) * a.max_positions;
        v[d] = gather ? gathered(value, position)
                      : __ldcg(reinterpret_cast<const uint4*>(value + position));
      }
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        mma_f16(out[d], weight[part][0][0], weight[part][0][1], weight[part][1][0],
                weight[part][1][1], v[d].x, v[d].y);
        mma_f16(out[d], weight[part][2][0], weight[part][2][1], weight[part][3][0],
                weight[part][3][1], v[d].z, v[d].w);
      }
    }
  }

  if (c == 0) {
    for (int half = 0; half < 2; ++half) {
      maxima[warp * 16 + lane / 4 + 8 * half] = maximum[half];
      totals[warp * 16 + lane / 4 + 8 * half] = total[half];
    }
  }
  const int teams = min(kTeams, (length + kSplit - 1) / kSplit);
  if (team < teams) {
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      float* to = outs + (warp * 16 + lane / 4) * kOutStride + d * 8 + c * 2;
      *reinterpret_cast<float2*>(to) = make_float2(out[d][0], out[d][1]);
      *reinterpret_cast<float2*>(to + 8 * kOutStride) = make_float2(out[d][2], out[d][3]);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < used * kHeadDim; i += kThreads) {
    const int index = i / kHeadDim, dimension = i % kHeadDim;
    float highest = kNothing;
    for (int w = 0; w < teams; ++w) highest = fmaxf(highest, maxima[w * kHalves * 16 + index]);
    float sum = 0.0F, value = 0.0F;
    for (int w = 0; w < teams; ++w) {
      const int place = (w * kHalves + dimension / 64) * 16 + index;
      const float factor = exp2f(maxima[place] - highest);
      sum = fmaf(totals[place], factor, sum);
      value = fmaf(outs[place * kOutStride + dimension % 64], factor, value);
    }
    const int row = group.first + index / heads;
    a.attention[static_cast<size_t>(row) * width + (kv_head * heads + index % heads) * kHeadDim +
                dimension] = value / sum;
  }
}

}  // namespace specquant::cuda
