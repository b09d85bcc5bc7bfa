// A matrix times up to 64 rows, each weight read once: a kernel of its own for each matrix.
//
// A cluster of blocks takes up to 16 tiles, each of its blocks a slice of the columns
// (MatrixShape). A warp takes one tile or two for 32 rows; stages of weights and of activations
// come through a ring in shared memory that all warps share. The sums have the order of
// multiply.cuh: a warp adds up the parts of its slice, and the blocks of the cluster share out the
// tiles to add the slices.
#pragma once

#include <type_traits>

#include "cuda/multiply.cuh"

namespace specquant::cuda {

constexpr int kWideWarps = 16;
constexpr int kWideThreads = kWideWarps * 32;
constexpr int kWideTiles = 16;  // the most of a block; a warp copies the weights of one
constexpr int kTogether = 4;    // token tiles of a warp
static_assert(kWideWarps == kWideTiles);

// A stage of the columns: weights of the block's tiles, activations of all rows.
template <class Format, int kTokenTiles>
struct WideSlot {
  using Fragment = std::remove_extent_t<decltype(Format::Input::x)>;
  static constexpr int kBlocks = Format::kStageColumns / 32;
  static constexpr int kScaleBlocks = Format::kAct == Act::s8 ? kBlocks : 1;

  uint8_t weights[kWideTiles][Format::kStageBytes];
  Fragment activations[kBlocks][kTokenTiles][32];
  float scales[kScaleBlocks][kTokenTiles * 8];
};

template <class Format, int kTokenTiles>
struct WideMemory {
  using Slot = WideSlot<Format, kTokenTiles>;
  static constexpr int kRingBytes = 205 * 1024;
  // Where constants must be prepared, two stages are taken in a turn if they find room, so that
  // every warp prepares.
  static constexpr int kTurnStages =
      !std::is_empty_v<typename Format::Constants> && 6 * sizeof(Slot) <= kRingBytes ? 2 : 1;
  static constexpr int kTurns = kRingBytes / static_cast<int>(sizeof(Slot)) / kTurnStages;
  static constexpr int kSlots = kTurns * kTurnStages;
  static_assert(kTurns >= 3);
  using Sums = TileSums[kWideTiles][kTokenTiles][32];

  union alignas(128) {
    Slot slot[kSlots];
    Sums sums;  // of the block's slice, once its stages are used up
  };
  typename Format::Constants constants[2 * kTurnStages][kTokenTiles];  // of two turns
  float rms[kTokenTiles * 8];
};
static_assert(sizeof(WideMemory<Float16<Act::f16>, 8>) <= 227 * 1024);

// A block's share of a matrix.
struct WideShare {
  int first_tile, tiles;
  int slice;
  int first_part, parts;  // of the slice
  int begin, end;         // its stages
};

__device__ __forceinline__ int first_stage_of_part(const MatrixShape& shape, int part,
                                                   int block_stages) {
  return shape.stages / block_stages * part / shape.parts * block_stages;
}

__device__ __forceinline__ WideShare wide_share(const MatrixShape& shape, int block_stages) {
  const int groups = static_cast<int>(gridDim.x) / shape.slices;
  const int group = static_cast<int>(blockIdx.x) / shape.slices;
  WideShare share;
  share.slice = static_cast<int>(blockIdx.x) % shape.slices;
  share.first_tile = static_cast<int>(static_cast<int64_t>(shape.tiles) * group / groups);
  share.tiles =
      static_cast<int>(static_cast<int64_t>(shape.tiles) * (group + 1) / groups) - share.first_tile;
  share.parts = shape.parts / shape.slices;
  share.first_part = share.slice * share.parts;
  share.begin = first_stage_of_part(shape, share.first_part, block_stages);
  share.end = first_stage_of_part(shape, share.first_part + share.parts, block_stages);
  return share;
}

// Copies stages into the slots of a ring, each thread its share of the bytes.
template <class Format, int kTokenTiles>
struct WideRing {
  using Memory = WideMemory<Format, kTokenTiles>;
  using Slot = typename Memory::Slot;

  Memory& memory;
  const WideShare& share;
  const uint8_t* weights;  // of the warp's tile, where it has one
  Inputs inputs;

  __device__ __forceinline__ Slot& slot_of(int stage) const {
    return memory.slot[static_cast<unsigned>(stage - share.begin) % Memory::kSlots];
  }
  __device__ __forceinline__ void ask_for_weights(int stage, int warp, int lane) const {
    if (warp >= share.tiles) return;
    uint8_t* to = slot_of(stage).weights[warp];
    const uint8_t* from = weights + static_cast<size_t>(stage) * Format::kStageBytes;
#pragma unroll
    for (int i = 0; i < Format::kStageBytes; i += 512) {
      if (i + 512 <= Format::kStageBytes || i + lane * 16 < Format::kStageBytes) {
        copy_piece(to + i + lane * 16, from + i + lane * 16);
      }
    }
  }
  __device__ __forceinline__ void ask_for_activations(int stage) const {
    constexpr int kBlockBytes = sizeof(Slot::activations) / Slot::kBlocks;
    constexpr int kRowBytes = kBlockBytes / (kTokenTiles * 8);
    Slot& slot = slot_of(stage);
    auto* to = reinterpret_cast<uint8_t*>(slot.activations);
    const uint8_t* from =
        inputs.data + static_cast<size_t>(stage) * (Slot::kBlocks * kPassRows * kRowBytes);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof slot.activations); i += kWideThreads * 16) {
      const int at = i + static_cast<int>(threadIdx.x) * 16;
      if (at < static_cast<int>(sizeof slot.activations)) {
        copy_piece(to + at, from + at / kBlockBytes * (kPassRows * kRowBytes) + at % kBlockBytes);
      }
    }
    if constexpr (Format::kAct == Act::s8) {
      const int at = static_cast<int>(threadIdx.x) * 4;
      if (at < Slot::kBlocks * kTokenTiles * 8) {
        const int block = at / (kTokenTiles * 8), row = at % (kTokenTiles * 8);
        copy_piece(
            &slot.scales[block][row],
            inputs.scales + static_cast<size_t>(stage * Slot::kBlocks + block) * kPassRows + row);
      }
    }
  }
};

// A barrier of the block that warps may reach at different places of the code.
__device__ __forceinline__ void warps_meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWideThreads) : "memory");
}

// Waits until all blocks of a group are here; what they wrote before is then seen. They are
// neighbours in the grid, and multiprocessors take blocks in order, so none waits for a block that
// cannot start. The counter is zero before and afterwards.
__device__ __forceinline__ void meet_group(unsigned* arrivals, int blocks) {
  __syncthreads();
  if (threadIdx.x == 0) {
    add_release(arrivals, 1);
    while (load_relaxed(arrivals) < static_cast<unsigned>(blocks)) {
    }
    acquire_fence();
    const unsigned last = 2 * static_cast<unsigned>(blocks) - 1;
    if (atomicAdd(arrivals, 1U) == last) *arrivals = 0;
  }
  __syncthreads();
}

// `meanwhile()` runs once the kernel before has ended, while the first stages are on their way.
// `epilogue(sums, tile, t)` gets each tile and token tile once.
template <class Format, int kTokenTiles, class Meanwhile, class Epilogue>
__device__ __forceinline__ void multiply_wide(const MatrixShape& shape, const uint8_t* weights,
                                              const Inputs& inputs, int rows,
                                              const SliceExchange& exchange,
                                              WideMemory<Format, kTokenTiles>& memory,
                                              Meanwhile meanwhile, Epilogue epilogue) {
  using Memory = WideMemory<Format, kTokenTiles>;
  constexpr int kSlots = Memory::kSlots;
  constexpr int kTeams = kTokenTiles / kTogether;  // of warps: each takes other tokens
  constexpr int kTileWarps = kWideWarps / kTeams;  // of a team
  constexpr int kWarpTiles = kWideTiles / kTileWarps;
  constexpr int kBlockStages = 128 / Format::kStageColumns;
  constexpr bool kPrepares = !std::is_empty_v<typename Format::Constants>;
  constexpr int kTurnStages = Memory::kTurnStages, kTurns = Memory::kTurns;
  const int warp = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_token_tile = warp / kTileWarps * kTogether, first_tile = warp % kTileWarps;
  const WideShare share = wide_share(shape, kBlockStages);
  const WideRing<Format, kTokenTiles> ring{
      memory, share,
      weights + static_cast<size_t>(share.first_tile + warp) * shape.stages * Format::kStageBytes,
      inputs};

  let_next_kernel_start();
#pragma unroll 1
  for (int i = 0; i < kSlots - kTurnStages; ++i) {
    if (share.begin + i < share.end) ring.ask_for_weights(share.begin + i, warp, lane);
  }
  wait_for_kernel_before();
#pragma unroll 1
  for (int i = 0; i < kSlots - kTurnStages; ++i) {
    if (share.begin + i < share.end) ring.ask_for_activations(share.begin + i);
    if ((i + 1) % kTurnStages == 0) end_copies();
  }
  meanwhile();

  // Of a token tile of one of the turn's stages, which begin at `first`.
  const auto prepare = [&](int first) {
    const int stage = first + warp / kTokenTiles, t = warp % kTokenTiles;
    if (warp >= kTurnStages * kTokenTiles || stage >= share.end) return;
    const auto& slot = ring.slot_of(stage);
    typename Format::Input input[1];
#pragma unroll
    for (int b = 0; b < Memory::Slot::kBlocks; ++b) input[0].x[b] = slot.activations[b][t][lane];
    if constexpr (Format::kAct == Act::s8) {
      input[0].scale = slot.scales[lane / 8][t * 8 + lane % 8];
    }
    Format::template prepare<1>(input, lane,
                                &memory.constants[(stage - share.begin) % (2 * kTurnStages)][t]);
  };
  if constexpr (kPrepares) {
    copies_but<kTurns - 2>();
    warps_meet();
    prepare(share.begin);
  }
  // Where the sums of a slice go: to the other blocks of the group or to this one.
  const auto sums_of = [&](int slice, int tile, int t) -> TileSums* {
    if (shape.slices == 1) return &memory.sums[tile][t][lane];
    const size_t index =
        (static_cast<size_t>(slice) * shape.tiles + share.first_tile + tile) * kTokenTiles + t;
    return exchange.sums + index * 32 + lane;
  };

  // All stages for `tiles` tiles of the warp. Which warps take how many is known at the start, so
  // that no sum has to move between registers later.
  const auto take = [&](auto tiles) {
    constexpr int kTiles = decltype(tiles)::value;
    float part[kTiles][kTogether][4] = {}, slice[kTiles][kTogether][4];
#pragma unroll
    for (int i = 0; i < kTiles * kTogether * 4; ++i) {
      slice[i / (kTogether * 4)][i / 4 % kTogether][i % 4] = -0.0F;  // changes no sum
    }
    int next_part = share.first_part + 1;
    int part_end = first_stage_of_part(shape, next_part, kBlockStages);
    int slot_index = 0;
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += kTurnStages) {
      copies_but<kTurns - (kPrepares ? 3 : 2)>();
      warps_meet();
#pragma unroll
      for (int i = 0; i < kTurnStages; ++i) {
        const int later = first + kSlots - kTurnStages + i;
        if (later >= share.end) continue;
        ring.ask_for_weights(later, warp, lane);
        ring.ask_for_activations(later);
      }
      end_copies();
      if constexpr (kPrepares) prepare(first + kTurnStages);
#pragma unroll 1
      for (int stage = first; stage < min(first + kTurnStages, share.end); ++stage) {
        const auto& slot = memory.slot[slot_index];
        slot_index = slot_index + 1 == kSlots ? 0 : slot_index + 1;
        const uint8_t* stages[kTiles];
#pragma unroll
        for (int i = 0; i < kTiles; ++i) stages[i] = slot.weights[first_tile + i * kTileWarps];
        Format::template multiply<kTiles, kTogether>(
            stages, lane,
            [&](int t, int b) { return slot.activations[b][first_token_tile + t][lane]; },
            memory.constants[(stage - share.begin) % (2 * kTurnStages)] + first_token_tile, part);
        if (stage + 1 < part_end) continue;
        part_end = first_stage_of_part(shape, ++next_part, kBlockStages);
#pragma unroll
        for (int i = 0; i < kTiles * kTogether * 4; ++i) {
          float& own = part[i / (kTogether * 4)][i / 4 % kTogether][i % 4];
          slice[i / (kTogether * 4)][i / 4 % kTogether][i % 4] += own;
          own = 0.0F;
        }
      }
    }
    warps_meet();  // the stages have been read
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int tile = first_tile + i * kTileWarps;
      if (tile >= share.tiles) continue;
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int t = first_token_tile + j;
        *sums_of(share.slice, tile, t) =
            make_float4(slice[i][j][0], slice[i][j][1], slice[i][j][2], slice[i][j][3]);
      }
    }
  };
  if (kWarpTiles == 1 || first_tile + kTileWarps >= share.tiles) {
    take(std::integral_constant<int, 1>{});
  } else {
    take(std::integral_constant<int, kWarpTiles>{});
  }
  if (shape.slices == 1) {
    __syncthreads();
  } else {
    meet_group(exchange.arrivals + blockIdx.x / shape.slices, shape.slices);
  }
  const int tiles = (share.tiles - share.slice + shape.slices - 1) / shape.slices;
  for (int item = warp; item < tiles * kTokenTiles; item += kWideWarps) {
    const int t = item % kTokenTiles, tile = item / kTokenTiles * shape.slices + share.slice;
    if (t * 8 >= rows) continue;
    TileSums sums{};
    if (shape.slices == 1) {
      sums = *sums_of(0, tile, t);
    } else {
      sums = __ldcg(sums_of(0, tile, t));
      for (int s = 1; s < shape.slices; ++s) sums = added(sums, __ldcg(sums_of(s, tile, t)));
    }
    epilogue(sums, share.first_tile + tile, t);
  }
}

}  // namespace specquant::cuda
