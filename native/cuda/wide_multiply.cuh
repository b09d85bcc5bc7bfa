// A matrix times up to 64 rows, each weight read once: a kernel of its own for each matrix.
//
// A group of neighbouring blocks takes up to 16 tiles, each of its blocks a slice of the columns
// (MatrixShape). A warpgroup takes four tiles for all rows, a warp one of them, whose weights it
// brings itself through a ring in shared memory. One more warpgroup brings the activations and
// prepares what products need of them, for all others. The sums have the order of multiply.cuh: a
// warp adds up the parts of its slice, and the blocks of a group share out the tiles to add the
// slices.
#pragma once

#include "cuda/wide_memory.cuh"

namespace specquant::cuda {

// A place in a ring: which, and the parity of its barriers' phase.
template <int kPlaces>
struct RingPlace {
  int index = 0, parity = 0;
  __device__ __forceinline__ void step() {
    if (++index == kPlaces) {
      index = 0;
      parity ^= 1;
    }
  }
};

// Brings the activations of all stages, which the first warp does, and prepares them; by a
// warpgroup.
template <class Format, int kTokenTiles>
__device__ __forceinline__ void bring_inputs(const WideShare& share, const Inputs& inputs,
                                             WideMemory<Format, kTokenTiles>& memory) {
  using Memory = WideMemory<Format, kTokenTiles>;
  using Input = typename Memory::Input;
  constexpr int kInputs = Memory::kInputs;
  constexpr int kBehind = 2;  // stages that those who multiply may be behind before it waits
  const int warp = static_cast<int>(threadIdx.x) / 32 - kWideWarps;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto ask = [&](int stage) {
    if (threadIdx.x != kProductThreads || stage >= share.end) return;
    const int index = (stage - share.begin) % kInputs;
    Input& to = memory.input[index];
    const uint32_t here = shared_address(&memory.input_here[index]);
    constexpr int kScaleBytes = Input::kRows * static_cast<int>(sizeof(float));
    barrier_expect(here, sizeof to.octets + Input::kScaleBlocks * kScaleBytes);
#pragma unroll
    for (int b = 0; b < Input::kBlocks; ++b) {
      const size_t block = static_cast<size_t>(stage) * Input::kBlocks + b;
      bulk_copy(shared_address(to.octets[b]), inputs.data + block * (kPassRows * Input::kRowBytes),
                sizeof to.octets[b], here);
      if constexpr (Input::kCodes) {
        bulk_copy(shared_address(to.scales[b]), inputs.scales + block * kPassRows, kScaleBytes,
                  here);
      }
    }
  };
  for (int i = 0; i < kInputs; ++i) ask(share.begin + i);
  RingPlace<kInputs> place, old;
#pragma unroll 1
  for (int stage = share.begin; stage < share.end; ++stage) {
    if constexpr (Memory::kPrepares) {
      barrier_wait(shared_address(&memory.input_here[place.index]), place.parity);
      __syncwarp();
      constexpr int kTiles = kTokenTiles / kGroupWarps;
      WideFormat<Format>::template prepare<kTiles>(memory.input[place.index], warp * kTiles, lane);
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&memory.input_prepared[place.index]));
      place.step();
    }
    if (warp != 0 || stage - share.begin < kBehind) continue;
    if (stage - kBehind + kInputs >= share.end) continue;
    barrier_wait(shared_address(&memory.input_free[old.index]), old.parity);
    ask(stage - kBehind + kInputs);
    old.step();
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
    const unsigned last = 2 * static_cast<unsigned>(blocks) - 1;
    if (atomicAdd(arrivals, 1U) == last) *arrivals = 0;
  }
  product_warps_meet();
}

// A tile's sums over the slice, to memory.sums.
template <class Format, int kTokenTiles>
__device__ __forceinline__ void sum_slice(const MatrixShape& shape, const WideShare& share,
                                          const uint8_t* next, int warp, int lane,
                                          WideMemory<Format, kTokenTiles>& memory) {
  using Memory = WideMemory<Format, kTokenTiles>;
  constexpr int kBlockStages = 128 / Format::kStageColumns;
  float part[kTokenTiles][4] = {};
  int next_part = share.first_part + 1;
  int part_end = first_stage_of_part(shape, next_part, kBlockStages);
  RingPlace<Memory::kInputs> place;
  RingPlace<Memory::kStages> own;
#pragma unroll 1
  for (int stage = share.begin; stage < share.end; ++stage) {
    const uint32_t here = shared_address(&memory.weights_here[warp][own.index]);
    barrier_wait(here, own.parity);
    barrier_wait(shared_address(&memory.input_here[place.index]), place.parity);
    if constexpr (Memory::kPrepares) {
      barrier_wait(shared_address(&memory.input_prepared[place.index]), place.parity);
    }
    __syncwarp();
    const auto& input = memory.input[place.index];
    uint8_t* weights = memory.weights[warp][own.index];
    WideFormat<Format>::template multiply<kTokenTiles>(weights, lane, input, part);
    __syncwarp();
    if (lane == 0) {
      barrier_arrive(shared_address(&memory.input_free[place.index]));
      if (stage + Memory::kStages < share.end) {
        barrier_expect(here, Format::kStageBytes);
        bulk_copy(shared_address(weights), next, Format::kStageBytes, here);
      }
    }
    next += Format::kStageBytes;
    place.step();
    own.step();
    if (stage + 1 < part_end) continue;
    const bool first = next_part == share.first_part + 1;
    part_end = first_stage_of_part(shape, ++next_part, kBlockStages);
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
      TileSums& sums = memory.sums[warp][t][lane];
      const TileSums sum = make_float4(part[t][0], part[t][1], part[t][2], part[t][3]);
      sums = first ? sum : added(sums, sum);
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
  const bool multiplies = warp < share.units * kGroupWarps;
  // A warp without a tile of its own helps its warpgroup with another's.
  const int tile = min(share.first_tile + warp, shape.tiles - 1);
  const uint8_t* from =
      weights + (static_cast<size_t>(tile) * shape.stages + share.begin) * Format::kStageBytes;

  let_next_kernel_start();
  if (multiplies && lane == 0) {
    for (int i = 0; i < Memory::kStages; ++i) {
      barrier_init(shared_address(&memory.weights_here[warp][i]));
    }
    barrier_init_done();
    for (int i = 0; i < Memory::kStages && share.begin + i < share.end; ++i) {
      const uint32_t here = shared_address(&memory.weights_here[warp][i]);
      barrier_expect(here, Format::kStageBytes);
      bulk_copy(shared_address(memory.weights[warp][i]), from + i * Format::kStageBytes,
                Format::kStageBytes, here);
    }
  }
  if (warp == kWideWarps && lane == 0) {
    for (int i = 0; i < Memory::kInputs; ++i) {
      barrier_init(shared_address(&memory.input_here[i]));
      barrier_init(shared_address(&memory.input_prepared[i]), kGroupWarps);
      barrier_init(shared_address(&memory.input_free[i]),
                   static_cast<uint32_t>(share.units * kGroupWarps));
    }
    barrier_init_done();
  }
  __syncthreads();
  wait_for_kernel_before();
  if (warp >= kWideWarps) {
    leave_registers<kHelpRegisters>();
    bring_inputs(share, inputs, memory);
    return;
  }
  take_registers<kProductRegisters>();
  meanwhile();
  if (multiplies) {
    sum_slice(shape, share, from + Memory::kStages * Format::kStageBytes, warp, lane, memory);
  }
  const auto sums_of = [&](int slice, int of, int t) -> TileSums* {
    if (shape.slices == 1) return &memory.sums[of][t][lane];
    const size_t index =
        (static_cast<size_t>(slice) * shape.tiles + share.first_tile + of) * kTokenTiles + t;
    return exchange.sums + index * 32 + lane;
  };
  if (shape.slices == 1) {
    product_warps_meet();
  } else {
    if (warp < share.tiles) {
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        __stcg(sums_of(share.slice, warp, t), memory.sums[warp][t][lane]);
      }
    }
    meet_group(exchange.arrivals + blockIdx.x / shape.slices, shape.slices);
  }
  const int items = (share.tiles / together - share.slice + shape.slices - 1) / shape.slices;
  for (int item = warp; item < items * kTokenTiles; item += kWideWarps) {
    const int t = item % kTokenTiles;
    const int first = (item / kTokenTiles * shape.slices + share.slice) * together;
    if (t * 8 >= rows) continue;
    const auto sums_at = [&](int i) {
      if (shape.slices == 1) return *sums_of(0, first + i, t);
      TileSums sums = __ldcg(sums_of(0, first + i, t));
      for (int s = 1; s < shape.slices; ++s) sums = added(sums, __ldcg(sums_of(s, first + i, t)));
      return sums;
    };
    epilogue(sums_at, share.first_tile + first, t);
  }
}

}  // namespace specquant::cuda
