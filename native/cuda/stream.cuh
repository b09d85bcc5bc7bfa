// A warp's weights, stage after stage in the order in which it multiplies, across matrices and
// layers: a ring of stages in shared memory that bulk copies refill as it goes. So the memory keeps
// streaming while blocks wait for one another or attend, for as long as the rings have room.
#pragma once

#include "cuda/formats.cuh"
#include "cuda/step.h"

namespace specquant::cuda {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * 32;
#ifndef SPECQUANT_RING_BYTES
#define SPECQUANT_RING_BYTES 8704
#endif
constexpr int kRingBytes = SPECQUANT_RING_BYTES;  // of a warp
constexpr int kMaxSlots = 8;
constexpr int kMaxMatrices = 384;

// What a warp takes of a matrix: one part of the columns, of every `stride`-th tile from `first`.
// Warps of a block that take different parts of the same tiles are a team.
struct Share {
  int tiles, first, stride;
  int begin, stages;  // of the part
  int row_stages;     // of a whole tile
};

__device__ __forceinline__ Share share_of(const MatrixShape& shape, int warp, int block_stages) {
  const int part = warp % shape.parts, team = warp / shape.parts, teams = kWarps / shape.parts;
  const int blocks = shape.stages / block_stages;
  Share share{};
  share.first = static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) * team;
  share.stride = static_cast<int>(gridDim.x) * teams;
  share.tiles =
      share.first < shape.tiles ? (shape.tiles - 1 - share.first) / share.stride + 1 : 0;
  share.begin = blocks * part / shape.parts * block_stages;
  share.stages = blocks * (part + 1) / shape.parts * block_stages - share.begin;
  share.row_stages = shape.stages;
  return share;
}

// Shared memory that the streams of a block's warps use: rings, their barriers, and tables, since
// reading those from global memory, between the streams of weights, costs microseconds each time.
struct StreamMemory {
  alignas(128) uint8_t ring[kWarps][kRingBytes];
  uint64_t barrier[kWarps][kMaxSlots];
  Share share[kMatrixKinds][kWarps];
  const uint8_t* weights[kMaxMatrices];
};

// Needs a block barrier behind it.
template <class Format>
__device__ __forceinline__ void fill_tables(const MatrixShape* shapes, int kinds,
                                            const uint8_t* const* weights, int matrices,
                                            StreamMemory& memory) {
  for (int i = static_cast<int>(threadIdx.x); i < kinds * kWarps; i += kThreads) {
    memory.share[i / kWarps][i % kWarps] =
        share_of(shapes[i / kWarps], i % kWarps, 128 / Format::kStageColumns);
  }
  for (int i = static_cast<int>(threadIdx.x); i < matrices; i += kThreads) {
    memory.weights[i] = weights[i];
  }
}

// Tiles are taken in batches of kBatch: a stage of each, then the next stage of each.
template <class Format, int kBatch>
class WeightStream {
 public:
  __device__ WeightStream(int kinds, int matrices, StreamMemory& memory)
      : memory_(memory), kinds_(kinds), matrices_(matrices) {
    // The shuffle tells the compiler that all lanes agree.
    warp_ = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / 32, 0);
    ring_ = shared_address(memory.ring[warp_]);
    barriers_ = shared_address(memory.barrier[warp_]);
    if (threadIdx.x % 32 == 0) {
      for (int slot = 0; slot < kSlots; ++slot) barrier_init(barriers_ + slot * 8);
      barrier_init_done();
    }
    __syncwarp();
    open_next_matrix();
    for (int slot = 0; slot < kSlots; ++slot) ask(slot);
  }

  // The next stage, once it has arrived.
  __device__ __forceinline__ const uint8_t* wait() {
    barrier_wait(barriers_ + slot_ * 8, parity_);
    return memory_.ring[warp_] + slot_ * Format::kStageBytes;
  }
  // Gives the stage back, to be filled with a later one.
  __device__ __forceinline__ void release() {
    __syncwarp();
    ask(slot_);
    if (++slot_ == kSlots) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  static constexpr int kSlots =
      kRingBytes / Format::kStageBytes < kMaxSlots ? kRingBytes / Format::kStageBytes : kMaxSlots;
  static_assert(kSlots >= 2);

  __device__ __forceinline__ void ask(int slot) {
    if (matrix_ >= matrices_) return;
    if (threadIdx.x % 32 == 0) {
      bulk_copy(ring_ + slot * Format::kStageBytes, next_, Format::kStageBytes,
                barriers_ + slot * 8);
    }
    if (++in_batch_ < batch_) {
      next_ += tile_bytes_;
      return;
    }
    in_batch_ = 0;
    if (--stages_left_ > 0) {
      next_ -= static_cast<int64_t>(tile_bytes_) * (batch_ - 1) - Format::kStageBytes;
      return;
    }
    tile_ += batch_;
    open_batch();
  }
  __device__ void open_batch() {
    const Share& share = memory_.share[kind_][warp_];
    if (tile_ >= share.tiles) {
      open_next_matrix();
      return;
    }
    batch_ = min(kBatch, share.tiles - tile_);
    stages_left_ = share.stages;
    next_ = memory_.weights[matrix_] +
            (static_cast<size_t>(share.first + tile_ * share.stride) * share.row_stages +
             share.begin) *
                Format::kStageBytes;
  }
  __device__ void open_next_matrix() {
    while (++matrix_ < matrices_) {
      kind_ = kind_ + 1 == kinds_ ? 0 : kind_ + 1;
      const Share& share = memory_.share[kind_][warp_];
      if (share.tiles == 0) continue;
      tile_ = 0;
      tile_bytes_ = share.stride * share.row_stages * Format::kStageBytes;
      batch_ = min(kBatch, share.tiles);
      stages_left_ = share.stages;
      next_ = memory_.weights[matrix_] +
              (static_cast<size_t>(share.first) * share.row_stages + share.begin) *
                  Format::kStageBytes;
      return;
    }
  }

  StreamMemory& memory_;
  const int kinds_, matrices_;
  int warp_;
  uint32_t ring_, barriers_;
  int slot_ = 0;
  uint32_t parity_ = 0;
  const uint8_t* next_ = nullptr;  // to ask for
  int tile_bytes_ = 0;             // from one tile's stage to the next tile's
  int batch_ = 0, in_batch_ = 0, stages_left_ = 0;
  int matrix_ = -1, kind_ = -1, tile_ = 0;
};

}  // namespace specquant::cuda
