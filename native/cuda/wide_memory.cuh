// A wide product's memory and the shares of its blocks (wide_multiply.cuh).
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/multiply.cuh"
#include "cuda/wide_formats.cuh"

namespace specquant::cuda {

constexpr int kWideWarps = 16;                  // that multiply
constexpr int kBringWarp = kWideWarps;          // asks for weights and activations
constexpr int kPrepareWarps = kGroupWarps - 1;  // those behind it: prepare activations
constexpr int kWideThreads = (kWideWarps + kGroupWarps) * 32;
constexpr int kProductThreads = kWideWarps * 32;
// Of a thread: at the start, then of those that multiply and of the others.
constexpr int kStartRegisters = 96, kProductRegisters = 112, kHelpRegisters = 32;
static_assert(kProductThreads * kProductRegisters + kGroupWarps * 32 * kHelpRegisters <=
              kWideThreads * kStartRegisters);
constexpr int kWideUnits = kWideWarps / kGroupWarps;  // of four tiles, the most of a block

template <class Format, int kTokenTiles>
struct WideMemory {
  using Input = StageInput<Format, kTokenTiles>;
  static constexpr bool kPrepares = !std::is_empty_v<typename WideFormat<Format>::Constants>;
  // A tile's sums over the slice are in registers, as far as there is room, the others in memory;
  // where all have room, they lie at last where weights were when these have been multiplied.
  static constexpr int kTilesInRegisters = WideFormat<Format>::tiles_in_registers(kTokenTiles);
  static constexpr bool kSumsInRegisters = kTilesInRegisters == kTokenTiles;
  static constexpr int kOwnSums = kSumsInRegisters ? 1 : kWideWarps;
  using Sums = TileSums[kTokenTiles][32];
  static constexpr int kSumBytes = kOwnSums * static_cast<int>(sizeof(Sums));
  static constexpr int kMostBytes = 226 * 1024, kInputBytes = 88 * 1024;
  static constexpr int kInputs = std::min(6, kInputBytes / static_cast<int>(sizeof(Input)));
  static constexpr int kStages =
      std::min(8, (kMostBytes - kSumBytes - kInputs * static_cast<int>(sizeof(Input)) - 4096) /
                      (kWideWarps * Format::kStageBytes));
  static_assert(kInputs >= 4 && kStages >= 2);

  Input input[kInputs];
  alignas(128) uint8_t weights[kStages][kWideWarps][Format::kStageBytes];
  Sums own_sums[kOwnSums];
  static_assert(sizeof weights >= sizeof(Sums) * kWideWarps);
  __device__ __forceinline__ Sums& sums(int warp) {  // of the warp's tile
    return kSumsInRegisters ? reinterpret_cast<Sums*>(weights)[warp] : own_sums[warp];
  }
  float rms[kPassRows];
  StepRow row[kPassRows];
  uint64_t weights_here[kStages], input_here[kInputs];
  uint64_t stage_prepared[kInputs], stage_free[kInputs];  // of weights and activations
};
static_assert(sizeof(WideMemory<Float16<Act::f16>, 8>) <= 227 * 1024);

// A block's share of a matrix.
struct WideShare {
  int first_tile, tiles;
  int units;  // of four tiles, of which the last may have fewer
  int slice;
  int first_part, parts;  // of the slice
  int begin, end;         // its stages
};

__device__ __forceinline__ int first_stage_of_part(const MatrixShape& shape, int part,
                                                   int block_stages) {
  const int log_parts = 31 - __clz(shape.parts);  // a power of two
  return (shape.stages / block_stages * part >> log_parts) * block_stages;
}

__host__ __device__ __forceinline__ int units_of(const MatrixShape& shape) {
  return (shape.tiles + kGroupWarps - 1) / kGroupWarps;
}

__device__ __forceinline__ WideShare wide_share(const MatrixShape& shape, int block_stages) {
  const int groups = static_cast<int>(gridDim.x) / shape.slices;
  const int group = static_cast<int>(blockIdx.x) / shape.slices;
  const auto first_unit = [&](int of) {
    return static_cast<int>(static_cast<int64_t>(units_of(shape)) * of / groups);
  };
  WideShare share;
  share.slice = static_cast<int>(blockIdx.x) % shape.slices;
  share.units = first_unit(group + 1) - first_unit(group);
  share.first_tile = first_unit(group) * kGroupWarps;
  share.tiles = min(share.units * kGroupWarps, shape.tiles - share.first_tile);
  share.parts = shape.parts / shape.slices;
  share.first_part = share.slice * share.parts;
  share.begin = first_stage_of_part(shape, share.first_part, block_stages);
  share.end = first_stage_of_part(shape, share.first_part + share.parts, block_stages);
  return share;
}

}  // namespace specquant::cuda
