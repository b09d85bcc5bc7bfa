// A matrix times up to 64 rows, each weight read once: a kernel of its own for each matrix.
//
// A group of neighbouring blocks takes up to 16 tiles, each of its blocks a slice of the columns
// (MatrixShape). A warpgroup takes four tiles for all rows, a warp one of them. Of one more
// warpgroup a warp brings stages of all tiles and of the activations through rings in shared
// memory, and the others prepare what products need of the activations. The sums have the order of
// multiply.cuh: a warp adds up the parts of its slice, and the blocks of a group share out the
// tiles to add the slices.
#pragma once

#include "cuda/wide_memory.cuh"

namespace specquant::cuda {

// Brings a share's stages, as many ahead as the rings have room for; by one warp, of which one lane
// asks for them.
template <class Format, int kTokenTiles>
class WideStages {
  using Memory = WideMemory<Format, kTokenTiles>;
  using Input = typename Memory::Input;

 public:
  __device__ __forceinline__ WideStages(const MatrixShape& shape, const WideShare& share,
                                        const uint8_t* weights, const Inputs& inputs,
                                        Memory& memory)
      : share_(share), inputs_(inputs), memory_(memory), tile_stages_(shape.stages) {
    weights_ = weights + (static_cast<size_t>(share.first_tile) * shape.stages + share.begin) *
                             Format::kStageBytes;
  }

  // Before the kernel before has ended.
  __device__ __forceinline__ void ask_for_first_weights() {
    for (int i = 0; i < Memory::kStages; ++i) ask_for_weights(i);
  }

  __device__ __forceinline__ void bring() {
    const int stages = share_.end - share_.begin;
    for (int i = 0; i < Memory::kInputs; ++i) ask_for_input(i);
#pragma unroll 1
    for (int i = 0; i + min(Memory::kInputs, Memory::kStages) < stages; ++i) {
      barrier_wait(shared_address(&memory_.stage_free[i % Memory::kInputs]),
                   i / Memory::kInputs % 2);
      __syncwarp();
      ask_for_input(i + Memory::kInputs);
      ask_for_weights(i + Memory::kStages);
    }
  }

 private:
  // `i` counts the share's stages.
  __device__ __forceinline__ void ask_for_weights(int i) {
    if (share_.begin + i >= share_.end || !elected()) return;
    const int place = i % Memory::kStages, tiles = share_.units * kGroupWarps;
    const uint32_t here = shared_address(&memory_.weights_here[place]);
    barrier_expect(here, static_cast<uint32_t>(tiles) * Format::kStageBytes);
#pragma unroll 4
    for (int tile = 0; tile < tiles; ++tile) {
      // A warp without a tile of its own helps its warpgroup with another's.
      const int stage = min(tile, share_.tiles - 1) * tile_stages_ + i;
      bulk_copy_once(shared_address(memory_.weights[place][tile]),
                     weights_ + static_cast<size_t>(stage) * Format::kStageBytes,
                     Format::kStageBytes, here);
    }
  }

  __device__ __forceinline__ void ask_for_input(int i) {
    if (share_.begin + i >= share_.end || !elected()) return;
    constexpr int kScaleBytes = Input::kRows * static_cast<int>(sizeof(float));
    const int place = i % Memory::kInputs;
    Input& to = memory_.input[place];
    const uint32_t here = shared_address(&memory_.input_here[place]);
    barrier_expect(here, sizeof to.octets + Input::kScaleBlocks * kScaleBytes);
#pragma unroll
    for (int b = 0; b < Input::kBlocks; ++b) {
      const size_t block = static_cast<size_t>(share_.begin + i) * Input::kBlocks + b;
      bulk_copy(shared_address(to.octets[b]), inputs_.data + block * (kPassRows * Input::kRowBytes),
                sizeof to.octets[b], here);
      if constexpr (Input::kCodes) {
        bulk_copy(shared_address(to.scales[b]), inputs_.scales + block * kPassRows, kScaleBytes,
                  here);
      }
    }
  }

  const WideShare& share_;
  const Inputs& inputs_;
  Memory& memory_;
  const uint8_t* weights_;
  int tile_stages_;
};

// Prepares every kPrepareWarps-th stage, from stage `first` of the share on: its weights and
// activations are then there as well. It waits for those between too, so that none is mistaken for
// the one that was in its place before.
template <class Format, int kTokenTiles>
__device__ __forceinline__ void prepare_stages(const WideShare& share, unsigned first, int lane,
                                               WideMemory<Format, kTokenTiles>& memory) {
  using Memory = WideMemory<Format, kTokenTiles>;
  const unsigned stages = share.end - share.begin;
#pragma unroll 1
  for (unsigned i = 0; i < stages; ++i) {
    const unsigned input = i % Memory::kInputs;
    barrier_wait(shared_address(&memory.input_here[input]), i / Memory::kInputs % 2);
    const bool mine = i % kPrepareWarps == first;
    if (mine) {
      __syncwarp();
      WideFormat<Format>::prepare(memory.input[input], lane);
    }
    barrier_wait(shared_address(&memory.weights_here[i % Memory::kStages]),
                 i / Memory::kStages % 2);
    if (mine) barrier_arrive(shared_address(&memory.stage_prepared[input]));
  }
}

// A barrier of the warps that multiply.
__device__ __forceinline__ void product_warps_meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kProductThreads) : "memory");
}

// Waits until all blocks of a group are here; what they wrote before is then seen. They are
// neighbours in the grid, and multiprocessors take blocks in order, so none waits for a block that
// cannot start. The counter is zero before and afterwards.
__device__ __forceinline__ void meet_group(unsigned* arrivals, int blocks) {
  product_warps_meet();
  if (threadIdx.x == 0) {
    add_release(arrivals, 1);
    while (load_acquire(arrivals) < static_cast<unsigned>(blocks)) {
    }
  }
  product_warps_meet();
  if (threadIdx.x == 0) atomicInc(arrivals, 2 * static_cast<unsigned>(blocks) - 1);
}

// A tile's sums over the slice: to `slice` those that have room in registers, the others to
// memory.sums.
template <class Format, int kTokenTiles>
__device__ __forceinline__ void sum_slice(const MatrixShape& shape, const WideShare& share,
                                          int warp, int lane,
                                          WideMemory<Format, kTokenTiles>& memory,
                                          TileSums (&slice)[kTokenTiles]) {
  using Memory = WideMemory<Format, kTokenTiles>;
  using Ahead = typename WideFormat<Format>::template Ahead<kTokenTiles>;
  constexpr int kBlockStages = 128 / Format::kStageColumns;
  float part[kTokenTiles][4] = {};
  // Waits for a stage; `i` counts those of the share.
  const auto stage_at = [&](unsigned i) {
    const unsigned weights = i % Memory::kStages, input = i % Memory::kInputs;
    if constexpr (Memory::kPrepares) {  // by a warp that has seen the stage here
      barrier_wait(shared_address(&memory.stage_prepared[input]), i / Memory::kInputs % 2);
    } else {
      barrier_wait(shared_address(&memory.weights_here[weights]), i / Memory::kStages % 2);
      barrier_wait(shared_address(&memory.input_here[input]), i / Memory::kInputs % 2);
    }
    __syncwarp();
    return WideStage<Format, kTokenTiles>{memory.weights[weights][warp], &memory.input[input]};
  };
  const unsigned stages = share.end - share.begin;
  WideStage<Format, kTokenTiles> own = stage_at(0), following = own;
  Ahead ahead;
  if constexpr (!std::is_empty_v<Ahead>) WideFormat<Format>::begin(own, lane, ahead);
  unsigned i = 0;
#pragma unroll 1
  for (int p = 0; p < share.parts; ++p) {
    const unsigned end =
        first_stage_of_part(shape, share.first_part + p + 1, kBlockStages) - share.begin;
#pragma unroll 1
    for (; i < end; ++i) {
      WideFormat<Format>::template multiply<kTokenTiles>(own, lane, ahead, part, [&] {
        if (i + 1 < stages) following = stage_at(i + 1);
        return following;
      });
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&memory.stage_free[i % Memory::kInputs]));
      own = following;
    }
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
      TileSums& sums = t < Memory::kTilesInRegisters ? slice[t] : memory.sums(warp)[t][lane];
      const TileSums sum = make_float4(part[t][0], part[t][1], part[t][2], part[t][3]);
      sums = p == 0 ? sum : added(sums, sum);
      // Of sums in memory not all at once, for which registers do not suffice.
      if (!Memory::kSumsInRegisters && t % 4 == 3) asm volatile("" ::: "memory");
      part[t][0] = part[t][1] = part[t][2] = part[t][3] = 0.0F;
    }
  }
}

// `meanwhile()` runs once the kernel before has ended, while the first stages are on their way.
// `epilogue(sums_at, tile, t)` is called once for each `together` tiles, `tile` the first, and
// token tile; sums_at(i) are those of tile + i.
template <class Format, int kTokenTiles, class Meanwhile, class Epilogue>
__device__ __forceinline__ void multiply_wide(const MatrixShape& shape, const uint8_t* weights,
                                              const Inputs& inputs, int rows,
                                              const SliceExchange& exchange,
                                              WideMemory<Format, kTokenTiles>& memory,
                                              Meanwhile meanwhile, int together,
                                              Epilogue epilogue) {
  using Memory = WideMemory<Format, kTokenTiles>;
  const int warp = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const WideShare share = wide_share(shape, 128 / Format::kStageColumns);
  let_next_kernel_start();
  if (warp == kBringWarp && lane == 0) {
    for (int i = 0; i < Memory::kStages; ++i) barrier_init(shared_address(&memory.weights_here[i]));
    for (int i = 0; i < Memory::kInputs; ++i) {
      barrier_init(shared_address(&memory.input_here[i]));
      barrier_init(shared_address(&memory.stage_prepared[i]), 32);
      barrier_init(shared_address(&memory.stage_free[i]),
                   static_cast<uint32_t>(share.units * kGroupWarps));
    }
    barrier_init_done();
  }
  __syncthreads();
  if (warp >= kWideWarps) {
    leave_registers<kHelpRegisters>();
    if (warp == kBringWarp) {
      WideStages<Format, kTokenTiles> stages(shape, share, weights, inputs, memory);
      stages.ask_for_first_weights();
      wait_for_kernel_before();
      stages.bring();
    } else if constexpr (Memory::kPrepares) {
      prepare_stages(share, warp - kBringWarp - 1, lane, memory);
    }
    return;
  }
  take_registers<kProductRegisters>();
  wait_for_kernel_before();
  meanwhile();
  TileSums slice[kTokenTiles];
  if (warp < share.units * kGroupWarps) {
    sum_slice<Format, kTokenTiles>(shape, share, warp, lane, memory, slice);
  }
  const auto sums_of = [&](int slice, int of, int t) {  // of slices that blocks have each
    const size_t index =
        (static_cast<size_t>(slice) * shape.tiles + share.first_tile + of) * kTokenTiles + t;
    return exchange.sums + index * 32 + lane;
  };
  if (Memory::kSumsInRegisters && shape.slices == 1) product_warps_meet();  // no weights are read
  if (warp < share.tiles) {
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
      TileSums& own = memory.sums(warp)[t][lane];
      const bool here = t < Memory::kTilesInRegisters;
      if (shape.slices != 1) {
        __stcg(sums_of(share.slice, warp, t), here ? slice[t] : own);
      } else if (here) {
        own = slice[t];
      }
    }
  }
  if (shape.slices == 1) {
    product_warps_meet();
  } else {
    meet_group(exchange.arrivals + blockIdx.x / shape.slices, shape.slices);
  }
  const int items = (share.tiles / together - share.slice + shape.slices - 1) / shape.slices;
  for (int item = warp; item < items * kTokenTiles; item += kWideWarps) {
    const int t = item % kTokenTiles;
    const int first = (item / kTokenTiles * shape.slices + share.slice) * together;
    if (t * 8 >= rows) continue;
    const auto sums_at = [&](int i) {
      if (shape.slices == 1) return memory.sums(first + i)[t][lane];
      TileSums slices[kMostSlices];  // on their way together
#pragma unroll
      for (int s = 0; s < kMostSlices; ++s) {
        if (s < shape.slices) slices[s] = __ldcg(sums_of(s, first + i, t));
      }
#pragma unroll
      for (int s = 1; s < kMostSlices; ++s) {
        if (s < shape.slices) slices[0] = added(slices[0], slices[s]);
      }
      return slices[0];
    };
    epilogue(sums_at, share.first_tile + first, t);
  }
}

}  // namespace specquant::cuda
