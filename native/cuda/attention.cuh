// Attention of a group of rows over the KV cache: one block of threads for a group and KV head.
//
// The query heads of a KV head and the rows of the group fill the 16 rows of a tensor-core tile.
// A warp sums 64 dimensions of the values, so that its sums stay in registers: for heads of 128,
// pairs of warps compute the same scores. Positions are cut into splits of 32 in logical order,
// dealt out in turn to the warps (or pairs), which take theirs in order with a running maximum; the
// warps' results are added in order. So a row's sums depend on nothing but its own length: splits
// that it does not see change no bit of them.
#pragma once

#include "cuda/step_memory.cuh"

namespace specquant::cuda {

template <int kHeadDim>
__device__ __noinline__ void attend(const StepArgs& a, int layer, int unit, bool bf16,
                                       StepMemory& block) {
  constexpr int kBlocks = kHeadDim / 32;
  constexpr int kHalves = kHeadDim / 64, kTeams = kWarps / kHalves;
  constexpr float kNothing = -INFINITY;
  AttentionMemory& memory = block.attention;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int c = lane % 4;
  const int team = warp / kHalves, dimensions = warp % kHalves * 64;  // of this warp

  const RowGroup group = block.group[unit / a.kv_heads];
  const int kv_head = unit % a.kv_heads;
  const int heads = a.heads / a.kv_heads;
  const StepRow& first = block.row[group.first];
  const int length = block.row[group.first + group.count - 1].visible;
  const int prefix = first.prefix;
  const uint64_t ancestors = first.ancestors;
  const bool tree = ancestors != 0;

  if (tree) {
    __syncthreads();  // the table may still be read for the unit before
    if (threadIdx.x < 64 && (ancestors >> threadIdx.x & 1) != 0) {
      memory.tail[__popcll(ancestors & ((uint64_t{1} << threadIdx.x) - 1))] =
          prefix + static_cast<int>(threadIdx.x);
    }
    __syncthreads();
  }

  // The lane's two rows of the tile: a row of the group and one of its heads each. Rows that are
  // not there stand for the last one.
  const int used = group.count * heads;
  int visible[2];
  uint4 query[2][kBlocks];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int index = min(lane / 4 + 8 * half, used - 1);
    const int row = group.first + index / heads;
    visible[half] = block.row[row].visible;
    const __half* from =
        a.query +
        (static_cast<size_t>(row) * a.heads + kv_head * heads + index % heads) * kHeadDim + c * 8;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      query[half][b] = __ldcg(reinterpret_cast<const uint4*>(from + b * 32));
    }
  }

  const size_t head_start =
      ((static_cast<size_t>(first.slot) * a.layers + layer) * a.kv_heads + kv_head) *
      a.max_positions * kHeadDim;
  const __half* keys = a.keys + head_start;
  const __half* values =
      a.values + head_start + static_cast<size_t>(dimensions + lane / 4) * a.max_positions;
  const float scale = rsqrtf(static_cast<float>(kHeadDim)) * 1.44269504F;  // to powers of two

  float maximum[2] = {kNothing, kNothing}, total[2] = {};
  float out[8][4] = {};
  const auto gathered = [&](const __half* value, int position) {
    __half one[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int entry = min(position + i, length - 1);
      one[i] = __ldcg(value + (entry < prefix ? entry : memory.tail[entry - prefix]));
    }
    return *reinterpret_cast<const uint4*>(one);
  };
#pragma unroll 1
  for (int start = team * kSplit; start < length; start += kTeams * kSplit) {
    // Column 2j + i of score tile t is position 8j + 2t + i of the split, so that a lane ends with
    // the scores of eight neighbouring positions, the operand that the values need.
    float score[4][4] = {};
    uint32_t key[4];  // from `keys`
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int column = lane / 4;
      int entry = min(start + column / 2 * 8 + t * 2 + column % 2, length - 1);
      if (tree && entry >= prefix) entry = memory.tail[entry - prefix];
      key[t] = static_cast<uint32_t>(entry) * kHeadDim + c * 8;
    }
#pragma unroll
    for (int pair = 0; pair < kBlocks; pair += 2) {  // loads of two blocks wait together
      uint4 k[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        k[i / 4][i % 4] =
            __ldcg(reinterpret_cast<const uint4*>(keys + key[i % 4] + (pair + i / 4) * 32));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 upper = query[0][pair + i], lower = query[1][pair + i];
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          mma_f16(score[t], upper.x, lower.x, upper.y, lower.y, k[i][t].x, k[i][t].y);
          mma_f16(score[t], upper.z, lower.z, upper.w, lower.w, k[i][t].z, k[i][t].w);
        }
      }
    }
    // The values are on their way while the weights are computed.
    const int position = start + c * 8;
    uint4 v[8];
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      const __half* value = values + static_cast<size_t>(d * 8) * a.max_positions;
      v[d] = tree && position + 8 > prefix
                 ? gathered(value, position)
                 : __ldcg(reinterpret_cast<const uint4*>(value + position));
    }
    uint32_t weight[4][2];  // pairs of f16: [t][row half]
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float high = maximum[half];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = score[t][2 * half + i];
          s = position + t * 2 + i < visible[half] ? s * scale : kNothing;
          high = fmaxf(high, s);
        }
      }
      high = fmaxf(high, __shfl_xor_sync(~0U, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0U, high, 2));
      const float base = high == kNothing ? 0.0F : high;
      const float keep = exp2f(maximum[half] - base);  // 0 at first
      float sum = 0.0F;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const float p = exp2f(score[t][2 * half] - base);
        const float q = exp2f(score[t][2 * half + 1] - base);
        sum += p + q;
        const __half2 both = __floats2half2_rn(p, q);
        weight[t][half] = *reinterpret_cast<const uint32_t*>(&both);
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
    for (int d = 0; d < 8; ++d) {
      mma_f16(out[d], weight[0][0], weight[0][1], weight[1][0], weight[1][1], v[d].x, v[d].y);
      mma_f16(out[d], weight[2][0], weight[2][1], weight[3][0], weight[3][1], v[d].z, v[d].w);
    }
  }

  const int teams = min(kTeams, (length + kSplit - 1) / kSplit);
  __syncthreads();  // what the unit before left has been read
  if (team < teams) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int index = lane / 4 + 8 * half;
      if (index >= used) continue;
      if (c == 0) {
        memory.maximum[warp][index] = maximum[half];
        memory.total[warp][index] = total[half];
      }
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        *reinterpret_cast<float2*>(&memory.out[warp][index][d * 8 + c * 2]) =
            make_float2(out[d][2 * half], out[d][2 * half + 1]);
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < used * kHeadDim; i += kThreads) {
    const int index = i / kHeadDim, dimension = i % kHeadDim;
    float highest = kNothing;
    for (int w = 0; w < teams; ++w) highest = fmaxf(highest, memory.maximum[w * kHalves][index]);
    float sum = 0.0F, value = 0.0F;
    for (int w = 0; w < teams; ++w) {
      const int from = w * kHalves + dimension / 64;
      const float factor = exp2f(memory.maximum[from][index] - highest);
      sum = fmaf(memory.total[from][index], factor, sum);
      value = fmaf(memory.out[from][index][dimension % 64], factor, value);
    }
    const int row = group.first + index / heads;
    __stcg(a.attention + static_cast<size_t>(row) * a.attention_stride +
               (kv_head * heads + index % heads) * kHeadDim + dimension / 8 * 8 +
               place_of(dimension % 8),
           to_16_bits(value / sum, bf16));
  }
}

}  // namespace specquant::cuda
