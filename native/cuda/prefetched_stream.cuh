// A warp's weights on GPUs without bulk copies, in the order of stream.cuh. Weights lie in memory
// as the lanes take them, so products load them from there, and the stream asks for stages before
// they are needed, so that they are in L2 by then. It needs no rings in shared memory, of which a
// block of compute capability 8.9 has 99 KB.
#pragma once

#include "cuda/stream.cuh"

namespace specquant::cuda {

// Shared memory of the streams of a block's warps.
struct PrefetchMemory {
  // What is asked for next; a warp's first lane alone reads and writes it.
  struct State {
    const uint8_t* next;
    int tile_bytes;  // from one tile's stage to the next tile's
    int stages_left, in_batch, batch;
    int matrix, kind, tile;
  };
  static constexpr int kMostAhead = 4;

  const uint8_t* const* weights;
  Share share[kMatrixKinds][kWarps];
  State state[kWarps];
  const uint8_t* asked[kWarps][kMostAhead];
};

// Needs a block barrier behind it. `weights` must stay where they are.
template <class Format>
__device__ __forceinline__ void fill_tables(const MatrixShape* shapes, int kinds,
                                            const uint8_t* const* weights, int,
                                            PrefetchMemory& memory) {
  for (int i = static_cast<int>(threadIdx.x); i < kinds * kWarps; i += kThreads) {
    memory.share[i / kWarps][i % kWarps] =
        share_of(shapes[i / kWarps], i % kWarps, 128 / Format::kStageColumns);
  }
  if (threadIdx.x == 0) memory.weights = weights;
}

template <class Format, int kBatch>
class PrefetchedStream {
 public:
  __device__ PrefetchedStream(int kinds, int matrices, PrefetchMemory& memory)
      : memory_(memory), kinds_(kinds), matrices_(matrices) {
    // The shuffle tells the compiler that all lanes agree.
    warp_ = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / 32, 0);
    if (threadIdx.x % 32 == 0) {
      State& s = memory.state[warp_];
      s.matrix = s.kind = -1;
      open_next_matrix(s);
    }
    for (int slot = 0; slot < kAhead; ++slot) ask(slot);
  }

  // Each stage comes by itself.
  static __device__ constexpr bool comes_whole(const Share&) { return false; }

  // The next stage, in global memory.
  __device__ __forceinline__ const uint8_t* wait() const {
    const uint8_t* stage = memory_.asked[warp_][slot_];
    __builtin_assume(__isGlobal(stage));
    return stage;
  }
  // Asks for a later one.
  __device__ __forceinline__ void release() {
    __syncwarp();
    ask(slot_);
    slot_ = slot_ + 1 == kAhead ? 0 : slot_ + 1;
  }

 private:
  using State = PrefetchMemory::State;
  static constexpr int kAhead = Format::kStageBytes <= 1280 ? PrefetchMemory::kMostAhead : 2;
  static constexpr int kLineBytes = 128, kLines = (Format::kStageBytes + 127) / kLineBytes;
  static_assert(kLines <= 32);

  __device__ __forceinline__ void ask(int slot) {
    if (threadIdx.x % 32 == 0) {
      State& s = memory_.state[warp_];
      memory_.asked[warp_][slot] = s.matrix < matrices_ ? s.next : nullptr;
      step(s);
    }
    __syncwarp();
    const uint8_t* stage = memory_.asked[warp_][slot];
    const int line = static_cast<int>(threadIdx.x) % 32;
    if (stage != nullptr && line < kLines) prefetch_l2(stage + line * kLineBytes);
  }
  // To the stage behind: of each tile of a batch one, then the next of each.
  __device__ __forceinline__ void step(State& s) {
    if (s.matrix >= matrices_) return;
    if (s.in_batch + 1 < s.batch) {
      ++s.in_batch;
      s.next += s.tile_bytes;
      return;
    }
    s.in_batch = 0;
    if (--s.stages_left > 0) {
      s.next -= static_cast<int64_t>(s.tile_bytes) * (s.batch - 1) - Format::kStageBytes;
      return;
    }
    s.tile += s.batch;
    if (s.tile < memory_.share[s.kind][warp_].tiles) {
      open_batch(s);
    } else {
      open_next_matrix(s);
    }
  }
  __device__ __forceinline__ void open_batch(State& s) {
    const Share& share = memory_.share[s.kind][warp_];
    s.batch = min(kBatch, share.tiles - s.tile);
    s.in_batch = 0;
    s.stages_left = share.stages;
    s.next = memory_.weights[s.matrix] +
             (static_cast<size_t>(share.first + s.tile * share.stride) * share.row_stages +
              share.begin) *
                 Format::kStageBytes;
  }
  __device__ void open_next_matrix(State& s) {
    while (++s.matrix < matrices_) {
      s.kind = s.kind + 1 == kinds_ ? 0 : s.kind + 1;
      const Share& share = memory_.share[s.kind][warp_];
      if (share.tiles == 0) continue;
      s.tile = 0;
      s.tile_bytes = share.stride * share.row_stages * Format::kStageBytes;
      open_batch(s);
      return;
    }
  }

  PrefetchMemory& memory_;
  const int kinds_, matrices_;
  int warp_;
  int slot_ = 0;
};

}  // namespace specquant::cuda
