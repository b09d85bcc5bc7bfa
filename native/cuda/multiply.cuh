// A matrix times the rows of a pass, by the whole grid.
//
// One order of sums for any number of rows: the columns are cut into parts, a number that depends
// on the shape alone; each part is summed from zero in order of columns, and the parts are added in
// order. The warps of a team take a part each and keep its activations in registers.
#pragma once

#include "cuda/stream.cuh"

namespace specquant::cuda {

// Tiles whose sums a warp keeps at a time.
__host__ __device__ constexpr int batch_of(int token_tiles) { return 4 / token_tiles; }

// Sums of a tile's rows l/4 and l/4 + 8 for tokens 2·(l%4) and + 1 of a token tile: {row, token},
// {row, token + 1}, {row + 8, token}, {row + 8, token + 1}.
using TileSums = float4;

// Parts on their way to be added: two sets in turn, so that one barrier of the block suffices.
template <int kTokenTiles>
struct Partials {
  static constexpr int kSlots = batch_of(kTokenTiles) * kWarps;
  TileSums sums[2][kSlots][kTokenTiles][32];
};

struct Inputs {
  const uint8_t* data;  // 16-bit activations, or codes
  const float* scales;  // of codes
  int columns;          // of a row, padding included
  const int32_t* row;   // rows to take; null: in order
};

template <Act kAct, int kTokenTiles>
__device__ __forceinline__ Tokens<kTokenTiles> tokens_of(const Inputs& inputs, int rows) {
  constexpr int kBytes = kAct == Act::s8 ? 1 : 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Tokens<kTokenTiles> tokens;
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    const int token = t * 8 + lane / 4;
    tokens.row[t] = nullptr;
    if (token < rows) {
      const int row = inputs.row == nullptr ? token : __ldg(inputs.row + token);
      tokens.row[t] =
          inputs.data + (static_cast<size_t>(row) * inputs.columns + lane % 4 * 8) * kBytes;
    }
  }
  tokens.scales = inputs.scales + lane / 8 * kStepRows + lane % 8;
  return tokens;
}

// `constant_bytes` is this warp's shared memory for two inputs. `meanwhile()` runs while the first
// activations are on their way. `epilogue(sums, tile, index, t)` gets each tile and token tile
// once; `index` counts the block's tiles of this matrix. `turn` is the set of partials to use next.
template <class Format, int kTokenTiles, class Stream, class Meanwhile, class Epilogue>
__device__ __forceinline__ void multiply(Stream& stream, const Share* shares, int parts,
                                         const Inputs& inputs, int rows, uint8_t* constant_bytes,
                                         Partials<kTokenTiles>& partials, int& turn,
                                         Meanwhile meanwhile, Epilogue epilogue) {
  constexpr int kBatch = batch_of(kTokenTiles);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Share share = shares[warp];
  const int team = warp / parts, part = warp % parts, teams = kWarps / parts;
  const Tokens<kTokenTiles> tokens = tokens_of<Format::kAct, kTokenTiles>(inputs, rows);
  const int begin = share.begin * Format::kStageColumns;

  // Stage s lies in input s % kInputs; a part of no more stages is loaded once for all tiles.
  constexpr int kInputs = 2;
  using Constants = typename Format::template Constants<kTokenTiles>;
  static_assert(sizeof(Constants) * kInputs <= kConstantBytes);
  auto* const constants = reinterpret_cast<Constants*>(constant_bytes);
  typename Format::template Input<kTokenTiles> input[kInputs];
  const bool stays = share.stages <= kInputs;
#pragma unroll
  for (int i = 0; i < kInputs; ++i) {
    if (i == 0 || i < share.stages) input[i].load(tokens, begin + i * Format::kStageColumns);
  }
  meanwhile();
  if (stays) {
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      if (i == 0 || i < share.stages) input[i].prepare(lane, constants[i]);
    }
  }

  const int batches = (shares[0].tiles + kBatch - 1) / kBatch;
#pragma unroll 1
  for (int batch = 0; batch < batches; ++batch) {
    const int count = min(kBatch, share.tiles - batch * kBatch);
    float sums[kBatch][kTokenTiles][4] = {};
    const auto take = [&](auto& in, Constants& own, int stage) {
      if (!stays) in.prepare(lane, own);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i < count) {
          Format::template multiply<kTokenTiles>(stream.wait(), lane, in, own, sums[i]);
          stream.release();
        }
      }
      if (!stays) {
        const int next = stage + kInputs < share.stages ? stage + kInputs : stage % kInputs;
        in.load(tokens, begin + next * Format::kStageColumns);
      }
    };
    if (count > 0 && Stream::comes_whole(share)) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i >= count) continue;
        const uint8_t* stages = stream.wait();
        Format::template multiply<kTokenTiles>(stages, lane, input[0], constants[0], sums[i]);
        Format::template multiply<kTokenTiles>(stages + Format::kStageBytes, lane, input[1],
                                               constants[1], sums[i]);
        stream.release();
      }
    } else if (count > 0) {
#pragma unroll 1
      for (int stage = 0; stage < share.stages; stage += kInputs) {
#pragma unroll
        for (int i = 0; i < kInputs; ++i) {
          if (i == 0 || stage + i < share.stages) take(input[i], constants[i], stage + i);
        }
      }
    }
    if (count > 0) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          partials.sums[turn][(team * kBatch + i) * parts + part][t][lane] =
              make_float4(sums[i][t][0], sums[i][t][1], sums[i][t][2], sums[i][t][3]);
        }
      }
    }
    __syncthreads();
    for (int item = warp; item < teams * kBatch * kTokenTiles; item += kWarps) {
      const int t = item % kTokenTiles, slot = item / kTokenTiles;
      const int owner = slot / kBatch, index = batch * kBatch + slot % kBatch;
      if (index >= shares[owner * parts].tiles || t * 8 >= rows) continue;
      const TileSums* from = &partials.sums[turn][slot * parts][t][lane];
      constexpr int kNext = kTokenTiles * 32;
      TileSums sum = from[0];
      for (int p = 1; p < parts; ++p) {
        const TileSums more = from[p * kNext];
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
      }
      const Share& owned = shares[owner * parts];
      epilogue(sum, owned.first + index * owned.stride, index * teams + owner, t);
    }
    turn ^= 1;
  }
}

}  // namespace specquant::cuda
