// A matrix times the rows of a pass, by the whole grid.
//
// One order of sums for any number of rows: the columns are cut into slices and these into parts,
// numbers that depend on the shape alone; each part is summed from zero in order of columns, the
// parts of a slice are added in order and then the slices. The warps of a team take a part each and
// keep its activations in registers.
#pragma once

#include <type_traits>

#include "cuda/stream.cuh"

namespace specquant::cuda {

// Tiles of a warp whose sums are added to those of its team at a time.
__host__ __device__ constexpr int batch_of(int token_tiles) { return 4 / token_tiles; }

// Sums of a tile's rows l/4 and l/4 + 8 for tokens 2·(l%4) and + 1 of a token tile: {row, token},
// {row, token + 1}, {row + 8, token}, {row + 8, token + 1}.
using TileSums = float4;

__device__ __forceinline__ TileSums added(const TileSums& a, const TileSums& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Parts on their way to be added: two sets in turn, so that one barrier of the block suffices.
template <int kTokenTiles>
struct Partials {
  static constexpr int kSlots = batch_of(kTokenTiles) * kWarps;
  static constexpr size_t kSetBytes = sizeof(TileSums) * kSlots * kTokenTiles * 32;
  TileSums sums[2][kSlots][kTokenTiles][32];
};

struct Inputs {
  const uint8_t* data;  // 16-bit activations, or codes
  const float* scales;  // of codes
};

template <Act kAct, int kTokenTiles>
__device__ __forceinline__ void find_tokens(const Inputs& inputs, int rows,
                                            TokenTile (&tokens)[kTokenTiles]) {
  constexpr int kBytes = kAct == Act::s8 ? 1 : 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    const int token = t * 8 + lane / 4;
    tokens[t].row = token < rows ? inputs.data + (token * 32 + lane % 4 * 8) * kBytes : nullptr;
    tokens[t].scales = inputs.scales + lane / 8 * kPassRows + t * 8 + lane % 8;
  }
}

// The sum of a tile's parts, `next` apart, of which each slice has `each`. Three loads are under
// way at a time: registers are scarce here.
__device__ __forceinline__ TileSums sum_of_parts(const TileSums* from, int next, int parts,
                                                 int each) {
  TileSums sum{};
#pragma unroll 1
  for (int first = 0; first < parts; first += each) {
    TileSums slice = from[first * next];
    int p = first + 1;
#pragma unroll 1
    for (; p + 2 < first + each; p += 3) {
      const TileSums a = from[p * next], b = from[(p + 1) * next], c = from[(p + 2) * next];
      slice = added(added(added(slice, a), b), c);
    }
#pragma unroll 1
    for (; p < first + each; ++p) slice = added(slice, from[p * next]);
    sum = first == 0 ? slice : added(sum, slice);
  }
  return sum;
}

// `constant_bytes` is this warp's shared memory for two inputs. `meanwhile(room)` runs while the
// first activations are on their way, `settle(room)` behind the first products: `room`, as large as
// a set of partials, is free until settle has run. `epilogue(sums, tile, index, t)` gets each tile
// and token tile once; `index` counts the block's tiles of this matrix. `turn` is the set of
// partials to use next.
template <class Format, int kTokenTiles, class Stream, class Meanwhile, class Settle,
          class Epilogue>
__device__ __forceinline__ void multiply(Stream& stream, const Share* shares,
                                         const MatrixShape& shape, const Inputs& inputs, int rows,
                                         uint8_t* constant_bytes, Partials<kTokenTiles>& partials,
                                         int& turn, Meanwhile meanwhile, Settle settle,
                                         Epilogue epilogue) {
  constexpr int kBatch = batch_of(kTokenTiles);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Share share = shares[warp];
  const int parts = share.parts, teams = share.teams;
  TokenTile tokens[kTokenTiles];
  find_tokens<Format::kAct>(inputs, rows, tokens);
  const int begin = share.begin * Format::kStageColumns;

  // Stage s lies in input s % kInputs; a part of no more stages is loaded once for all tiles.
  constexpr int kInputs = 2;
  using Constants = typename Format::Constants;
  static_assert(sizeof(Constants) * kTokenTiles * kInputs <= kConstantBytes);
  typename Format::Input input[kInputs][kTokenTiles];
  typename Format::template Prepared<kTokenTiles> prepared[kInputs];
#pragma unroll
  for (int i = 0; i < kInputs; ++i) {
    prepared[i].shared = reinterpret_cast<Constants*>(constant_bytes) + i * kTokenTiles;
  }
  const bool stays = share.stages <= kInputs;
  const auto load = [&](int i, int stage) {
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
      input[i][t].load(tokens[t], begin + stage * Format::kStageColumns);
    }
  };
  // Looks again for what other blocks had not handed over, until all of the first `count` inputs,
  // of the stages from `stage` on, are there.
  const auto await = [&](int count, int stage) {
    for (bool all = false; !all;) {
      all = true;
#pragma unroll
      for (int i = 0; i < kInputs; ++i) {
        if (i >= count) continue;
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          if (input[i][t].there()) continue;
          input[i][t].load(tokens[t], begin + (stage + i) * Format::kStageColumns);
          all = false;
        }
      }
    }
    __syncwarp();
  };
  // Of the first one or two inputs, whose sums then take turns.
  const auto prepare = [&](bool both) {
    if (both) {
#pragma unroll
      for (int i = 0; i < kInputs; ++i) prepared[i].prepare(input[i], lane);
    } else {
      prepared[0].prepare(input[0], lane);
    }
  };
  // Adds the products of kStages from a copy, with inputs from `first` on; `copied` runs when lanes
  // have them.
  const auto add_products = [&]<int kStages>(std::integral_constant<int, kStages>, int first,
                                             const uint8_t* stages, float(&sums)[kTokenTiles][4],
                                             auto copied) {
    typename Format::Weights weights[kStages];
#pragma unroll
    for (int k = 0; k < kStages; ++k) weights[k].load(stages + k * Format::kStageBytes, lane);
    copied();
    Format::template multiply<kTokenTiles, kStages>(
        weights, lane, [&](int k, int t, int b) { return input[first + k][t].x[b]; },
        prepared + first, sums);
  };
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, kInputs> kBoth;
#pragma unroll
  for (int i = 0; i < kInputs; ++i) {
    if (i == 0 || i < share.stages) load(i, i);
  }
  void* const room = partials.sums[turn ^ 1];
  meanwhile(room);
  await(min(kInputs, share.stages), 0);
  if (stays) prepare(share.stages > 1);

  const int batches = (shares[0].tiles + kBatch - 1) / kBatch;
#pragma unroll 1
  for (int batch = 0; batch < batches; ++batch) {
    const int count = min(kBatch, share.tiles - batch * kBatch);
    const auto keep = [&](int i, const float(&sums)[kTokenTiles][4]) {
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        partials.sums[turn][(share.team * kBatch + i) * parts + share.part][t][lane] =
            make_float4(sums[t][0], sums[t][1], sums[t][2], sums[t][3]);
      }
    };
    if (Stream::kTogether == kInputs && share.stages == kInputs) {
      // What most parts are: one copy a tile.
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        float sums[kTokenTiles][4] = {};
        add_products(kBoth, 0, stream.wait(), sums, [&] { stream.release(); });
        keep(i, sums);
      }
    } else if (count > 0) {
      float sums[kBatch][kTokenTiles][4] = {};
      const auto release = [&] { stream.release(); };
      // Activations of a part that does not stay are others each time.
      const auto load_again = [&](int i, int stage) {
        if (!stays && stage < share.stages) load(i, stage);
      };
      // take(stages, i) with what the stream has next of each tile.
      const auto each_tile = [&](auto take) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (i < count) take(stream.wait(), i);
        }
      };
#pragma unroll 1
      for (int stage = 0; stage < share.stages; stage += kInputs) {
        const bool second = stage + 1 < share.stages;
        const int next = stage + kInputs < share.stages ? stage + kInputs : 0;
        if (!stays) {
          await(second ? kInputs : 1, stage);
          prepare(second);
        }
        if constexpr (Stream::kTogether == kInputs) {
          each_tile([&](const uint8_t* stages, int i) {
            if (second) {
              add_products(kBoth, 0, stages, sums[i], release);
            } else {
              add_products(kOne, 0, stages, sums[i], release);
            }
          });
          load_again(0, next);
          load_again(1, next + 1);
        } else {
          static_assert(Stream::kTogether == 1);
#pragma unroll
          for (int k = 0; k < kInputs; ++k) {
            if (k == 0 || second) {
              each_tile([&](const uint8_t* stages, int i) {
                add_products(kOne, k, stages, sums[i], release);
              });
            }
            load_again(k, next + k);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i < count) keep(i, sums[i]);
      }
    }
    if (batch == 0) settle(room);
    __syncthreads();
    for (int item = warp; item < teams * kBatch * kTokenTiles; item += kWarps) {
      const int t = item % kTokenTiles, slot = item / kTokenTiles;
      const int owner = slot / kBatch, index = batch * kBatch + slot % kBatch;
      if (index >= shares[owner * parts].tiles || t * 8 >= rows) continue;
      const TileSums sum = sum_of_parts(&partials.sums[turn][slot * parts][t][lane],
                                        kTokenTiles * 32, parts, share.slice_parts);
      const Share& owned = shares[owner * parts];
      epilogue(sum, owned.first + index * owned.stride, index * teams + owner, t);
    }
    turn ^= 1;
  }
}

}  // namespace specquant::cuda
