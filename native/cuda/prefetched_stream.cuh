// A warp's weights on GPUs without bulk copies, in the order of stream.cuh. Weights lie in memory
// as the lanes take them, so products load them from there, and the stream asks for stages before
// they are needed, so that they are in L2 by then. It needs no rings in shared memory, of which a
// block of compute capability 8.9 has 99 KB.
#pragma once

#include "cuda/stream.cuh"

namespace specquant::cuda {

// Shared memory of the streams of a block's warps.
struct PrefetchMemory {
  static constexpr int kMostAhead = 4;

  const uint8_t* const* weights;
  Share share[kMatrixKinds][kWarps];
  StreamState state[kWarps];
  const uint8_t* asked[kWarps][kMostAhead];
};

// Needs a block barrier behind it. `weights` must stay where they are.
template <class Format>
__device__ __forceinline__ void fill_tables(const MatrixShape* shapes, int kinds,
                                            const uint8_t* const* weights, int,
                                            PrefetchMemory& memory) {
  fill_shares<Format>(shapes, kinds, memory);
  if (threadIdx.x == 0) memory.weights = weights;
}

template <class Format, int kBatch>
class PrefetchedStream {
  using Order = StageOrder<Format, kBatch, 1, PrefetchMemory>;

 public:
  static constexpr int kTogether = 1;

  __device__ PrefetchedStream(int kinds, int matrices, PrefetchMemory& memory)
      : memory_(memory), order_{memory, kinds, matrices, 0} {
    // The shuffle tells the compiler that all lanes agree.
    order_.warp = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / 32, 0);
    if (threadIdx.x % 32 == 0) order_.start(memory.state[order_.warp]);
    for (int slot = 0; slot < kAhead; ++slot) ask(slot);
  }

  // The next stage, in global memory.
  __device__ __forceinline__ const uint8_t* wait() const {
    const uint8_t* stage = memory_.asked[order_.warp][slot_];
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
  static constexpr int kAhead = Format::kStageBytes <= 1280 ? PrefetchMemory::kMostAhead : 2;
  static constexpr int kLineBytes = 128, kLines = (Format::kStageBytes + 127) / kLineBytes;
  static_assert(kLines <= 32);

  __device__ __forceinline__ void ask(int slot) {
    if (threadIdx.x % 32 == 0) {
      StreamState& s = memory_.state[order_.warp];
      const bool more = s.run.left > 0;
      memory_.asked[order_.warp][slot] = more ? s.run.next : nullptr;
      if (more) order_.step(s);
    }
    __syncwarp();
    const uint8_t* stage = memory_.asked[order_.warp][slot];
    const int line = static_cast<int>(threadIdx.x) % 32;
    if (stage != nullptr && line < kLines) prefetch_l2(stage + line * kLineBytes);
  }

  PrefetchMemory& memory_;
  Order order_;
  int slot_ = 0;
};

}  // namespace specquant::cuda
