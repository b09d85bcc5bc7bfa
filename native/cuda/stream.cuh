// A warp's weights, stage after stage in the order in which it multiplies, across matrices and
// layers: a ring of stages in shared memory that bulk copies refill as it goes. So the memory keeps
// streaming while blocks wait for one another or attend, for as long as the rings have room.
#pragma once

#include "cuda/formats.cuh"
#include "cuda/step.h"

namespace specquant::cuda {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * 32;
constexpr int kRingBytes = 4352;  // of a warp
constexpr int kMaxSlots = 4;
constexpr int kMaxMatrices = 384;

// What a warp takes of a matrix: one part of the columns, of every `stride`-th tile from `first`.
// Warps of a block that take different parts of the same tiles are a team, of which there are
// `teams`, with a warp for each of `parts`.
struct alignas(8) Share {
  int tiles, first, stride;
  int16_t begin, stages;  // of the part
  int16_t row_stages;     // of a whole tile
  int8_t team, part, teams, parts;
  int8_t slice_parts;  // parts of a slice
};
static_assert(sizeof(Share) == 24);

__device__ __forceinline__ Share share_of(const MatrixShape& shape, int warp, int block_stages) {
  const int part = warp % shape.parts, team = warp / shape.parts, teams = kWarps / shape.parts;
  const int blocks = shape.stages / block_stages;
  Share share{};
  share.team = static_cast<int8_t>(team);
  share.part = static_cast<int8_t>(part);
  share.teams = static_cast<int8_t>(teams);
  share.parts = static_cast<int8_t>(shape.parts);
  share.slice_parts = static_cast<int8_t>(shape.parts / shape.slices);
  share.first = static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) * team;
  share.stride = static_cast<int>(gridDim.x) * teams;
  share.tiles = share.first < shape.tiles ? (shape.tiles - 1 - share.first) / share.stride + 1 : 0;
  const int begin = blocks * part / shape.parts * block_stages;
  const int end = blocks * (part + 1) / shape.parts * block_stages;
  share.begin = static_cast<int16_t>(begin);
  share.stages = static_cast<int16_t>(end - begin);
  share.row_stages = static_cast<int16_t>(shape.stages);
  return share;
}

// Copies of a stream that follow one another at equal distances; none are left at its end.
struct alignas(16) CopyRun {
  const uint8_t* next;
  uint32_t apart;  // bytes
  uint16_t left, bytes;
};

// What a warp's stream asks for next; one lane at a time reads and writes it.
struct StreamState {
  CopyRun run;
  const uint8_t* begin;  // of the run
  int copies_left;       // of the batch's tiles, that of the run included
  int batch, last;       // stages of a part's last copy
  int matrix, kind, tile;
};

// Shared memory that the streams of a block's warps use: rings, their barriers, and tables, since
// reading those from global memory, between the streams of weights, costs microseconds each time.
struct StreamMemory {
  alignas(128) uint8_t ring[kWarps][kRingBytes];
  uint64_t barrier[kWarps][kMaxSlots];
  Share share[kMatrixKinds][kWarps];
  const uint8_t* weights[kMaxMatrices];
  StreamState state[kWarps];
};

template <class Format, class Memory>
__device__ __forceinline__ void fill_shares(const MatrixShape* shapes, int kinds, Memory& memory) {
  for (int i = static_cast<int>(threadIdx.x); i < kinds * kWarps; i += kThreads) {
    memory.share[i / kWarps][i % kWarps] =
        share_of(shapes[i / kWarps], i % kWarps, 128 / Format::kStageColumns);
  }
}

// Needs a block barrier behind it.
template <class Format>
__device__ __forceinline__ void fill_tables(const MatrixShape* shapes, int kinds,
                                            const uint8_t* const* weights, int matrices,
                                            StreamMemory& memory) {
  fill_shares<Format>(shapes, kinds, memory);
  for (int i = static_cast<int>(threadIdx.x); i < matrices; i += kThreads) {
    memory.weights[i] = weights[i];
  }
}

// The order in which a warp takes its stages, in copies of kTogether of them, of which a part's
// last may have fewer. Tiles are taken in batches of kBatch: a copy of each, then the next of each.
// `Memory` has the shares and the matrices' weights.
template <class Format, int kBatch, int kTogether, class Memory>
struct StageOrder {
  const Memory& memory;
  const int kinds, matrices;
  int warp;

  __device__ __forceinline__ void start(StreamState& s) const {
    s.matrix = s.kind = -1;
    open_next_matrix(s);
  }
  // To the copy behind the present one.
  __device__ __forceinline__ void step(StreamState& s) const {
    if (s.run.left > 1) {
      s.run.next += s.run.apart;
      --s.run.left;
    } else {
      next_run(s);
    }
  }
  __device__ __forceinline__ void next_run(StreamState& s) const {
    if (--s.copies_left > 0) {
      s.begin += kTogether * Format::kStageBytes;
      open_run(s);
      return;
    }
    s.tile += s.batch;
    if (s.tile < memory.share[s.kind][warp].tiles) {
      open_batch(s);
    } else {
      open_next_matrix(s);
    }
  }

 private:
  __device__ __forceinline__ void open_run(StreamState& s) const {
    s.run.next = s.begin;
    s.run.left = static_cast<uint16_t>(s.batch);
    s.run.bytes =
        static_cast<uint16_t>((s.copies_left == 1 ? s.last : kTogether) * Format::kStageBytes);
  }
  __device__ __forceinline__ void open_batch(StreamState& s) const {
    const Share& share = memory.share[s.kind][warp];
    s.copies_left = (share.stages + kTogether - 1) / kTogether;
    // Tiles of one copy each follow one another whatever their batch.
    s.batch = s.copies_left == 1 ? share.tiles : min(kBatch, share.tiles - s.tile);
    s.begin = memory.weights[s.matrix] +
              (static_cast<size_t>(share.first + s.tile * share.stride) * share.row_stages +
               share.begin) *
                  Format::kStageBytes;
    open_run(s);
  }
  __device__ void open_next_matrix(StreamState& s) const {
    while (++s.matrix < matrices) {
      s.kind = s.kind + 1 == kinds ? 0 : s.kind + 1;
      const Share& share = memory.share[s.kind][warp];
      if (share.tiles == 0) continue;
      s.tile = 0;
      s.last = (share.stages - 1) % kTogether + 1;
      s.run.apart = static_cast<uint32_t>(share.stride * share.row_stages * Format::kStageBytes);
      open_batch(s);
      return;
    }
    s.run.left = 0;
  }
};

// Where the stream stands lies in shared memory: registers are scarce, and spilled ones would be
// read back through the same queue as the weights.
template <class Format, int kBatch>
class WeightStream {
 public:
  static constexpr int kTogether = Format::kStageBytes <= 1088 ? 2 : 1;  // stages of a copy

  __device__ WeightStream(int kinds, int matrices, StreamMemory& memory)
      : memory_(memory), order_{memory, kinds, matrices, 0} {
    // The shuffle tells the compiler that all lanes agree.
    order_.warp = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / 32, 0);
    ring_ = shared_address(memory.ring[order_.warp]);
    barriers_ = shared_address(memory.barrier[order_.warp]);
    if (threadIdx.x % 32 == 0) {
      for (int slot = 0; slot < kSlots; ++slot) barrier_init(barriers_ + slot * 8);
      barrier_init_done();
      order_.start(memory.state[order_.warp]);
      for (int slot = 0; slot < kSlots; ++slot) ask(slot);
    }
    __syncwarp();
  }

  // The next copy, once it has arrived.
  __device__ __forceinline__ const uint8_t* wait() {
    barrier_wait(barriers_ + slot_ * 8, parity_);
    return memory_.ring[order_.warp] + slot_ * kSlotBytes;
  }
  // Gives its place back, to be filled with a later one.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (elected()) ask(slot_);
    if (++slot_ == kSlots) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  using Order = StageOrder<Format, kBatch, kTogether, StreamMemory>;

  // More bytes on their way than the memory's latency needs make every other read wait longer.
  static constexpr int kSlotBytes = kTogether * Format::kStageBytes;
  static constexpr int kSlots = kRingBytes / kSlotBytes;
  static_assert(kSlots >= 2 && kSlots <= kMaxSlots && kSlots * kSlotBytes <= kRingBytes);

  __device__ __forceinline__ void ask(int slot) {
    StreamState& s = memory_.state[order_.warp];
    CopyRun run = s.run;
    if (run.left == 0) return;
    barrier_expect(barriers_ + slot * 8, run.bytes);
    bulk_copy_once(ring_ + slot * kSlotBytes, run.next, run.bytes, barriers_ + slot * 8);
    if (run.left > 1) {
      run.next += run.apart;
      --run.left;
      s.run = run;
    } else {
      order_.next_run(s);
    }
  }

  StreamMemory& memory_;
  Order order_;
  uint32_t ring_, barriers_;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace specquant::cuda
