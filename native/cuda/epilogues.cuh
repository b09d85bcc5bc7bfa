// What becomes of a finished tile: each function gets the sums of 16 output rows for the eight
// tokens of token tile `t`, in the lanes' order (TileSums).
#pragma once

#include "cuda/handover.cuh"
#include "cuda/step_memory.cuh"

namespace specquant::cuda {

// Sums of squares of 16 columns each of the pass's rows.
struct Squares {
  const float* from;  // [row][count]
  int rows, count;
  float* room;  // shared memory where they are brought meanwhile; null where they do not fit
};

__device__ __forceinline__ Squares squares_at(const float* from, int rows, int hidden, void* room,
                                              size_t room_bytes) {
  const int count = hidden / kTileRows;
  const bool fit = rows * count * sizeof(float) <= room_bytes && count % 4 == 0;
  return {from, rows, count, fit ? static_cast<float*>(room) : nullptr};
}

__device__ __forceinline__ void ask_for_row(const Squares& s, int row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = row * s.count + lane * 4; i < (row + 1) * s.count; i += 32 * 4) {
    copy_piece(s.room + i, s.from + i);
  }
}
__device__ __forceinline__ void ask_for_squares(const Squares& s) {
  if (s.room == nullptr) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int row = warp; row < s.rows; row += kWarps) ask_for_row(s, row);
}

// 1 / rms of each row, to shared memory, a warp a row, from what the warp has asked for, or looks
// for again where it was not yet written (handover.cuh). The order of the sum does not depend on
// the number of rows. Needs a block barrier behind it.
__device__ __forceinline__ void inverse_rms(const Squares& s, float epsilon, float* out) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = warp; row < s.rows; row += kWarps) {
    float sum = 0.0F;
    if (s.room != nullptr) {
      for (bool all = false; !all;) {
        copies_done();
        __syncwarp();
        sum = 0.0F;
        all = true;
#pragma unroll 4
        for (int i = row * s.count + lane; i < (row + 1) * s.count; i += 32) {
          all = all && __float_as_uint(s.room[i]) != kMark;
          sum += s.room[i];
        }
        all = __all_sync(~0U, all);
        if (!all) ask_for_row(s, row);
      }
    } else {
      for (int i = row * s.count + lane; i < (row + 1) * s.count; i += 32) {
        uint32_t word = kMark;
        while (word == kMark) word = load_relaxed(s.from + i);
        sum += __uint_as_float(word);
      }
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0U, sum, step);
    if (lane == 0) {
      out[row] = 1.0F / sqrtf(sum / static_cast<float>(s.count * kTileRows) + epsilon);
    }
  }
}

// Adds a product to the residual stream (`own`: of this tile, in rows of `stride`) and leaves sums
// of squares and the next norm's input, by put(half, column, values), called by whole warps, for
// the lane's two tokens and its columns of the tile's halves. `norm` are the norm's weights for the
// tile; its 1 / rms is applied to the next product instead.
template <class Put>
__device__ __forceinline__ void add_to_residual(const StepArgs& a, const float* norm, bool bf16,
                                                const TileSums& sums, int tile, int t, float* own,
                                                int stride, const HandedOver<float>& squares,
                                                Put put) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float weight[2] = {norm[lane / 4], norm[lane / 4 + 8]};
  float old[2][2] = {};  // on their way together
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = t * 8 + lane % 4 * 2 + i;
    if (token >= a.rows) continue;
    old[i][0] = own[static_cast<size_t>(token) * stride + lane / 4];
    old[i][1] = own[static_cast<size_t>(token) * stride + lane / 4 + 8];
  }
  uint16_t values[2][2];  // [half of the tile][token]
  float square[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = t * 8 + lane % 4 * 2 + i;
    const float first = old[i][0] + (i == 0 ? sums.x : sums.y);
    const float second = old[i][1] + (i == 0 ? sums.z : sums.w);
    if (token < a.rows) {
      float* at = own + static_cast<size_t>(token) * stride + lane / 4;
      at[0] = first;
      at[8] = second;
    }
    values[0][i] = to_16_bits(first * weight[0], bf16);
    values[1][i] = to_16_bits(second * weight[1], bf16);
    square[i] = fmaf(first, first, second * second);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    put(half, tile * kTileRows + half * 8 + lane / 4, values[half]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = t * 8 + lane % 4 * 2 + i;
    for (int step = 4; step < 32; step *= 2) square[i] += __shfl_xor_sync(~0U, square[i], step);
    if (token < a.rows && lane < 4) {
      squares.put(static_cast<size_t>(token) * (a.hidden / kTileRows) + tile,
                  __float_as_uint(square[i]));
    }
  }
}

// Leaves the residual stream behind a layer where it is wanted (`own` as in add_to_residual, as the
// same lanes have just added to it).
__device__ __forceinline__ void keep_residual(const StepArgs& a, int layer, int tile, int t,
                                              const float* own, int stride) {
  float* out = a.kept[layer];
  if (out == nullptr) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = t * 8 + lane % 4 * 2 + i;
    if (token >= a.rows) continue;
    float* to = out + static_cast<size_t>(token) * a.hidden + tile * kTileRows + lane / 4;
    const float* from = own + static_cast<size_t>(token) * stride + lane / 4;
    to[0] = from[0];
    to[8] = from[8];
  }
}

// Rotates queries and keys, and writes keys and values to the cache. A tile lies within one head.
// turn(token, pair) gives cosine and sine.
template <class Turn>
__device__ __forceinline__ void place_qkv(const StepArgs& a, int layer, const TileSums& sums,
                                          int tile, int t, const StepRow* rows, const float* rms,
                                          Turn turn) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int log_head_dim = 31 - __clz(a.head_dim);  // a power of two
  const int head = tile * kTileRows >> log_head_dim;
  const int dimension = (tile * kTileRows & (a.head_dim - 1)) + lane / 4;
  const float values[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = t * 8 + lane % 4 * 2 + i % 2;
    const int d = dimension + i / 2 * 8;
    const float other = __shfl_xor_sync(~0U, values[i], 4);  // the pair's other dimension
    if (token >= a.rows) continue;
    const StepRow& row = rows[token];
    float value = values[i];
    if (head < a.heads + a.kv_heads) {
      const float2 by = turn(token, d / 2);
      value = d % 2 == 0 ? value * by.x - other * by.y : value * by.x + other * by.y;
    }
    const __half rounded = __float2half_rn(value * rms[token]);
    if (head < a.heads) {
      a.query[(static_cast<size_t>(token) * a.heads + head) * a.head_dim + d] = rounded;
      continue;
    }
    const bool is_key = head < a.heads + a.kv_heads;
    const int kv_head = head - a.heads - (is_key ? 0 : a.kv_heads);
    const size_t start =
        ((static_cast<size_t>(row.slot) * a.layers + layer) * a.kv_heads + kv_head) *
        a.max_positions * a.head_dim;
    if (is_key) {
      a.keys[start + static_cast<size_t>(row.cache_index) * a.head_dim + d] = rounded;
    } else {
      a.values[start + static_cast<size_t>(d) * a.max_positions + row.cache_index] = rounded;
    }
  }
}

// A tile of gate_up holds eight rows of the gate, then the same eight of up. The result goes to
// put(column, values), called by whole warps, for the lane's two tokens.
template <class Put>
__device__ __forceinline__ void silu_product(const StepArgs& a, bool bf16, const TileSums& sums,
                                             int tile, int t, const float* rms, Put put) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint16_t values[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = t * 8 + lane % 4 * 2 + i;
    if (token >= a.rows) continue;
    const float gate = (i == 0 ? sums.x : sums.y) * rms[token];
    const float up = (i == 0 ? sums.z : sums.w) * rms[token];
    values[i] = to_16_bits(gate / (1.0F + __expf(-gate)) * up, bf16);
  }
  put(tile * 8 + lane / 4, values);
}

// The columns of what a product of a layer takes.
__host__ __device__ __forceinline__ int columns_of(const StepArgs& a, int layer, MatrixKind kind) {
  return kind == kO                   ? a.attention_padded
         : kind == kDown              ? a.intermediate_padded
         : layer == 0 && kind == kQkv ? a.first_padded
                                      : a.hidden_padded;
}

// Of the rows that have a row of logits.
__device__ __forceinline__ void place_logits(const HeadArgs& a, const TileSums& sums, int tile,
                                             int t, const float* rms) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float values[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = t * 8 + lane % 4 * 2 + i % 2;
    const int output = tile * kTileRows + lane / 4 + i / 2 * 8;
    if (token >= a.rows || output >= a.vocabulary) continue;
    const int row = a.logit_row == nullptr ? token : __ldg(a.logit_row + token);
    if (row < 0) continue;
    a.logits[static_cast<size_t>(row) * a.vocabulary + output] = values[i] * rms[token];
  }
}

}  // namespace specquant::cuda
