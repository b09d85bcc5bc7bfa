// Attention of a group of rows over the KV cache: one block of threads for a group and KV head, or
// several.
//
// Products are transposed: positions, then dimensions, fill the 16 rows of a tensor-core tile, and
// the query heads of a KV head and the rows of the group its eight columns ("queries"). Positions
// are cut into splits of 16 in logical order, dealt out in turn to 16 teams, which take theirs in
// order with a running maximum; the teams' results are added in order. A team is a warp, or warps
// take several teams in turn. So a row's sums depend on nothing but its own length: splits that it
// does not see change no bit of them.
#pragma once

#include "cuda/handover.cuh"
#include "cuda/step_memory.cuh"

namespace specquant::cuda {

// Teams of a group's units, of which each row of the group sees some.
__device__ __forceinline__ int teams_of(const RowGroup& group, const StepRow* rows) {
  const int length = rows[group.first + group.count - 1].visible;
  return min(kTeams, (length + kSplit - 1) / kSplit);
}

// What teams first, first + step ... of a unit find, to `parts`, by store(address, value); `tail`
// is shared memory.
template <int kHeadDim, int kBlockWarps, class Parts, class Store>
__device__ __forceinline__ void attend_teams(const StepArgs& a, int layer, int unit, int first_team,
                                             int team_step, const StepRow* rows,
                                             const RowGroup* groups, int32_t* tail, Parts& parts,
                                             Store store) {
  constexpr int kBlocks = kHeadDim / 32, kTiles = kHeadDim / 16;
  constexpr float kNothing = -INFINITY;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int r = lane / 4, c = lane % 4;

  const RowGroup group = groups[unit / a.kv_heads];
  const int kv_head = unit % a.kv_heads;
  const int heads = a.heads / a.kv_heads;
  const StepRow& first = rows[group.first];
  const int length = rows[group.first + group.count - 1].visible;
  const int prefix = first.prefix;
  const uint64_t ancestors = first.ancestors;
  const bool tree = ancestors != 0;
  const int used = group.count * heads;

  __syncthreads();  // what the unit before left has been read
  if (tree) {
    if (threadIdx.x < 64 && (ancestors >> threadIdx.x & 1) != 0) {
      tail[__popcll(ancestors & ((uint64_t{1} << threadIdx.x) - 1))] =
          prefix + static_cast<int>(threadIdx.x);
    }
    __syncthreads();
  }

  // Queries that are not there stand for the last one.
  const auto row_of = [&](int query) { return group.first + min(query, used - 1) / heads; };
  uint4 query[kBlocks];  // number r, in columns of the tensor-core tile
  {
    const __half* from =
        a.query +
        (static_cast<size_t>(row_of(r)) * a.heads + kv_head * heads + min(r, used - 1) % heads) *
            kHeadDim +
        c * 8;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      query[b] = __ldcg(reinterpret_cast<const uint4*>(from + b * 32));
    }
  }
  const int visible[2] = {rows[row_of(2 * c)].visible, rows[row_of(2 * c + 1)].visible};

  const size_t head_start =
      ((static_cast<size_t>(first.slot) * a.layers + layer) * a.kv_heads + kv_head) *
      a.max_positions * kHeadDim;
  const __half* keys = a.keys + head_start + c * 8;
  const __half* values = a.values + head_start + static_cast<size_t>(r) * a.max_positions;
  const float scale = rsqrtf(static_cast<float>(kHeadDim)) * 1.44269504F;  // to powers of two

  const int teams = teams_of(group, rows);
#pragma unroll 1
  for (int team = first_team + warp * team_step; team < teams; team += kBlockWarps * team_step) {
    // Of queries 2c and 2c + 1; out[d] holds dimensions 16d + r, for both, and 16d + r + 8.
    float maximum[2] = {kNothing, kNothing}, total[2] = {};
    float out[kTiles][4] = {};
#pragma unroll 1
    for (int start = team * kSplit; start < length; start += kTeams * kSplit) {
      // Row r of half j of the score tile is position 4·(r/2) + 2j + r%2 of the split, so that
      // transposed halves give a lane four neighbouring positions, as the values lie.
      float score[4] = {};
      uint32_t key[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        int entry = min(start + r / 2 * 4 + j * 2 + r % 2, length - 1);
        if (tree && entry >= prefix) entry = tail[entry - prefix];
        key[j] = static_cast<uint32_t>(entry) * kHeadDim;
      }
      uint4 k[kBlocks][2];
#pragma unroll
      for (int i = 0; i < 2 * kBlocks; ++i) {
        k[i / 2][i % 2] = __ldcg(reinterpret_cast<const uint4*>(keys + key[i % 2] + i / 2 * 32));
      }
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const uint4 q = query[b], upper = k[b][0], lower = k[b][1];
        mma_f16(score, upper.x, lower.x, upper.y, lower.y, q.x, q.y);
        mma_f16(score, upper.z, lower.z, upper.w, lower.w, q.z, q.w);
      }
      uint32_t weight[2];  // of query r, positions 4c + 2j and + 1
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float high = maximum[i];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& s = score[2 * j + i];
          s = start + r / 2 * 4 + j * 2 + r % 2 < visible[i] ? s * scale : kNothing;
          high = fmaxf(high, s);
        }
        for (int step = 4; step < 32; step *= 2)
          high = fmaxf(high, __shfl_xor_sync(~0U, high, step));
        const float base = high == kNothing ? 0.0F : high;
        const float keep = exp2f(maximum[i] - base);  // 0 at first
        float sum = 0.0F;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          score[2 * j + i] = exp2f(score[2 * j + i] - base);
          sum += score[2 * j + i];
        }
        for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0U, sum, step);
        total[i] = total[i] * keep + sum;
        maximum[i] = high;
#pragma unroll
        for (int d = 0; d < kTiles; ++d) {
          out[d][i] *= keep;
          out[d][2 + i] *= keep;
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const __half2 both = __floats2half2_rn(score[2 * j], score[2 * j + 1]);
        weight[j] = transpose_octet(*reinterpret_cast<const uint32_t*>(&both));
      }
      const int position = start + c * 4;
      const auto add = [&](int d, const uint2& upper, const uint2& lower) {
        mma_f16(out[d], upper.x, lower.x, upper.y, lower.y, weight[0], weight[1]);
      };
      if (!tree || start + kSplit <= prefix) {
        uint2 v[2 * kTiles];
#pragma unroll
        for (int i = 0; i < 2 * kTiles; ++i) {
          v[i] = __ldcg(reinterpret_cast<const uint2*>(
              values + static_cast<size_t>(i * 8) * a.max_positions + position));
        }
#pragma unroll
        for (int d = 0; d < kTiles; ++d) add(d, v[2 * d], v[2 * d + 1]);
      } else {
        int entries[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          entries[i] = min(position + i, length - 1);
          if (entries[i] >= prefix) entries[i] = tail[entries[i] - prefix];
        }
#pragma unroll
        for (int d = 0; d < kTiles; ++d) {
          __align__(8) __half v[2][4];
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            v[i / 4][i % 4] =
                __ldcg(values + static_cast<size_t>(d * 16 + i / 4 * 8) * a.max_positions +
                       entries[i % 4]);
          }
          add(d, *reinterpret_cast<const uint2*>(v[0]), *reinterpret_cast<const uint2*>(v[1]));
        }
      }
    }

#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int number = 2 * c + i;
      if (number >= used) continue;
      if (r == 0) {
        store(&parts.maximum[team][number], maximum[i]);
        store(&parts.total[team][number], total[i]);
      }
#pragma unroll
      for (int d = 0; d < kTiles; ++d) {
        store(&parts.out[team][number][d * 16 + r], out[d][i]);
        store(&parts.out[team][number][d * 16 + r + 8], out[d][2 + i]);
      }
    }
  }
}

// Puts the output of a unit's query in a dimension, from all its teams.
template <int kHeadDim, class Parts, class Put>
__device__ __forceinline__ void put_teams(const StepArgs& a, int unit, const RowGroup& group,
                                          int query, int dimension, bool bf16, const StepRow* rows,
                                          const Parts& parts, Put put) {
  const int heads = a.heads / a.kv_heads;
  const int teams = teams_of(group, rows);
  float highest = -INFINITY;
#pragma unroll 8
  for (int w = 0; w < teams; ++w) highest = fmaxf(highest, parts.maximum[w][query]);
  float sum = 0.0F, value = 0.0F;
#pragma unroll 4
  for (int w = 0; w < teams; ++w) {
    const float factor = exp2f(parts.maximum[w][query] - highest);
    sum = fmaf(parts.total[w][query], factor, sum);
    value = fmaf(parts.out[w][query][dimension], factor, value);
  }
  const int column = (unit % a.kv_heads * heads + query % heads) * kHeadDim + dimension;
  put(group.first + query / heads, column, to_16_bits(value / sum, bf16));
}

// A unit by one block. The result goes to put(row, column, value), called by whole warps for 32
// columns of a row.
template <int kHeadDim, int kBlockWarps, class Put>
__device__ __forceinline__ void attend(const StepArgs& a, int layer, int unit, bool bf16,
                                       const StepRow* rows, const RowGroup* groups,
                                       AttentionMemory& memory, Put put) {
  attend_teams<kHeadDim, kBlockWarps>(a, layer, unit, 0, 1, rows, groups, memory.tail, memory,
                                      [](float* to, float value) { *to = value; });
  __syncthreads();
  const RowGroup group = groups[unit / a.kv_heads];
  const int used = group.count * (a.heads / a.kv_heads);
  for (int i = static_cast<int>(threadIdx.x); i < used * kHeadDim; i += kBlockWarps * 32) {
    put_teams<kHeadDim>(a, unit, group, i / kHeadDim, i % kHeadDim, bf16, rows, memory, put);
  }
}

// Blocks that attend to a unit of a narrow pass whose longest row sees `longest` entries. What they
// hand over is worth it where they are many or the entries are.
__device__ __forceinline__ int blocks_of_unit(int units, int longest) {
  constexpr int kManyBlocks = 8, kManyEntries = 512;
  int blocks = 1;
  while (blocks < kTeams && blocks * 2 * units <= static_cast<int>(gridDim.x)) blocks *= 2;
  return blocks < kManyBlocks && longest <= kManyEntries ? 1 : blocks;
}

// Marks all that blocks of all units will hand over in a pass's first layer. Part of the grid's
// threads do it.
template <class Parts>
__device__ __forceinline__ void mark_teams(Parts* parts, int units, int thread, int threads) {
  auto* const pieces = reinterpret_cast<uint4*>(parts);
  static_assert(sizeof(Parts) % sizeof(uint4) == 0);
  const int count = units * static_cast<int>(sizeof(Parts) / sizeof(uint4));
  for (int i = thread; i < count; i += threads) {
    __stcg(pieces + i, make_uint4(kMark, kMark, kMark, kMark));
  }
}

// Puts what all teams of a unit have handed over, as put_teams does, for 32 dimensions of a query
// from `first` on, by a warp. Lane w knows team w's share.
template <class Parts, class Put>
__device__ __forceinline__ void put_handed_over(const StepArgs& a, int unit, const RowGroup& group,
                                                int query, int first, bool bf16, int teams,
                                                const Parts& parts, Put put) {
  static_assert(kTeams <= 32);
  const int lane = static_cast<int>(threadIdx.x) % 32, dimension = first + lane;
  uint32_t maximum = 0, total = 0, out[kTeams];
  for (bool all = false; !all;) {
    if (lane < teams) {
      maximum = load_relaxed(&parts.maximum[lane][query]);
      total = load_relaxed(&parts.total[lane][query]);
    }
#pragma unroll
    for (int w = 0; w < kTeams; ++w) {
      out[w] = w < teams ? load_relaxed(&parts.out[w][query][dimension]) : 0;
    }
    all = maximum != kMark && total != kMark;
#pragma unroll
    for (int w = 0; w < kTeams; ++w) all = all && out[w] != kMark;
    all = __all_sync(~0U, all);
  }
  const float own = lane < teams ? __uint_as_float(maximum) : -INFINITY;
  float highest = own;
  for (int step = 16; step > 0; step /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(~0U, highest, step));
  }
  const float factor = exp2f(own - highest);
  float sum = 0.0F, value = 0.0F;
#pragma unroll
  for (int w = 0; w < kTeams; ++w) {
    const float team_factor = __shfl_sync(~0U, factor, w);
    sum = fmaf(__shfl_sync(~0U, __uint_as_float(total), w), team_factor, sum);
    value = fmaf(__uint_as_float(out[w]), team_factor, value);
  }
  const int heads = a.heads / a.kv_heads;
  const int column = (unit % a.kv_heads * heads + query % heads) * a.head_dim + dimension;
  put(group.first + query / heads, column, to_16_bits(value / sum, bf16));
}

// The end of what blocks of all units hand over, by the whole grid, a warp for 32 columns of a
// query; the last warps of blocks, since the first attend.
template <int kBlockWarps, class Parts, class Put>
__device__ __forceinline__ void put_all_handed_over(const StepArgs& a, bool bf16,
                                                    const StepRow* rows, const RowGroup* groups,
                                                    const Parts* parts, Put put) {
  const int warp_dims = a.head_dim / 32;
  const int warp = kBlockWarps - 1 - static_cast<int>(threadIdx.x) / 32;
  const int heads = a.heads / a.kv_heads, grid = static_cast<int>(gridDim.x);
  int piece = warp * grid + static_cast<int>(blockIdx.x);  // from the unit's first on
#pragma unroll 1
  for (int unit = 0; unit < a.groups * a.kv_heads; ++unit) {
    const RowGroup group = groups[unit / a.kv_heads];
    const int pieces = group.count * heads * warp_dims, teams = teams_of(group, rows);
#pragma unroll 1
    for (; piece < pieces; piece += kBlockWarps * grid) {
      put_handed_over(a, unit, group, piece / warp_dims, piece % warp_dims * 32, bf16, teams,
                      parts[unit], put);
    }
    piece -= pieces;
  }
}

}  // namespace specquant::cuda
