// One pass of up to 64 rows through all layers as a single kernel, and the head's product.
//
// A grid of one block a multiprocessor stays for the whole pass; phases are parted by a barrier of
// the grid. Each warp owns a ring of weight stages in shared memory that it refills as it goes, in
// the order in which it will need them, across phases and layers. So the memory keeps streaming
// while blocks wait for one another, normalize or attend, for as long as the rings have room.
//
// A unit of work is a tile of 16 output rows and a part of the columns. The block that ends the
// last part of a tile adds the parts in order and applies the epilogue.
#pragma once

#include "cuda/attention.cuh"
#include "cuda/inputs.cuh"

namespace specquant::cuda {

constexpr int kRingBytes = 8704;  // of a warp
constexpr int kMaxSlots = 8;
constexpr int kInputBytes = 84 * 1024;

constexpr int kMaxMatrices = 384;

// Which units of a matrix a block takes: one part of the columns, and every stride-th tile.
struct Share {
  int part, first, stride;
  int begin, stages;  // of the part
};

struct SharedLayout {
  static constexpr int kInputs = kWarps * kRingBytes;
  static constexpr int kRms = kInputs + kInputBytes;
  static constexpr int kBarriers = kRms + kStepRows * 4;
  static constexpr int kShares = kBarriers + kWarps * kMaxSlots * 8;
  static constexpr int kWeights = kShares + kMatrixKinds * 32;
  static constexpr int kBytes = kWeights + kMaxMatrices * 8;
};
static_assert(attention_shared_bytes() <= kInputBytes);
static_assert(sizeof(Share) <= 32);

__device__ __forceinline__ const Share& share_of(const uint8_t* shared, int kind) {
  return reinterpret_cast<const Share*>(shared + SharedLayout::kShares)[kind];
}

// Tables of the pass in shared memory: reading them from global memory, between the streams of
// weights, would cost microseconds each time. Needs a block barrier behind it.
__device__ __forceinline__ void fill_tables(const MatrixShape* shapes, int kinds,
                                            const uint8_t* const* weights, int matrices,
                                            uint8_t* shared) {
  if (static_cast<int>(threadIdx.x) < kinds) {
    const MatrixShape& shape = shapes[threadIdx.x];
    const int blocks = static_cast<int>(gridDim.x) / shape.parts;
    Share share{};
    share.part = static_cast<int>(blockIdx.x) / blocks;
    share.first = share.part < shape.parts ? static_cast<int>(blockIdx.x) % blocks : shape.tiles;
    share.stride = blocks;
    share.begin = shape.stages * share.part / shape.parts;
    share.stages = shape.stages * (share.part + 1) / shape.parts - share.begin;
    reinterpret_cast<Share*>(shared + SharedLayout::kShares)[threadIdx.x] = share;
  }
  for (int i = static_cast<int>(threadIdx.x); i < matrices; i += kThreads) {
    reinterpret_cast<const uint8_t**>(shared + SharedLayout::kWeights)[i] = weights[i];
  }
}

// A warp's weights, stage after stage of unit after unit of matrix after matrix.
template <class Format>
class WeightStream {
 public:
  __device__ WeightStream(const MatrixShape* shapes, int kinds, int matrices, uint8_t* shared)
      : shapes_(shapes), kinds_(kinds), matrices_(matrices), shared_(shared) {
    // The shuffle tells the compiler that all lanes agree.
    warp_ = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / 32, 0);
    barriers_ = shared_address(shared + SharedLayout::kBarriers) + warp_ * kMaxSlots * 8;
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
    return shared_ + warp_ * kRingBytes + slot_ * Format::kStageBytes;
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
  static constexpr int kSlots = kRingBytes / Format::kStageBytes;
  static_assert(kSlots >= 2 && kSlots <= kMaxSlots);

  __device__ __forceinline__ void ask(int slot) {
    if (left_ == 0) return;
    if (threadIdx.x % 32 == 0) {
      bulk_copy(shared_address(shared_) + warp_ * kRingBytes + slot * Format::kStageBytes, next_,
                Format::kStageBytes, barriers_ + slot * 8);
    }
    next_ += Format::kStageBytes;
    if (--left_ == 0) next_unit();
  }
  __device__ __forceinline__ void next_unit() {
    const Share& share = share_of(shared_, kind_);
    tile_ += share.stride * kWarps;
    if (tile_ < shapes_[kind_].tiles) {
      open_unit();
    } else {
      open_next_matrix();
    }
  }
  __device__ void open_next_matrix() {
    while (++matrix_ < matrices_) {
      kind_ = kind_ + 1 == kinds_ ? 0 : kind_ + 1;
      const Share& share = share_of(shared_, kind_);
      tile_ = share.first + share.stride * warp_;
      if (tile_ < shapes_[kind_].tiles) {
        open_unit();
        return;
      }
    }
  }
  __device__ void open_unit() {
    const Share& share = share_of(shared_, kind_);
    left_ = share.stages;
    next_ =
        reinterpret_cast<const uint8_t* const*>(shared_ + SharedLayout::kWeights)[matrix_] +
        (static_cast<size_t>(tile_) * shapes_[kind_].stages + share.begin) * Format::kStageBytes;
  }

  const MatrixShape* shapes_;
  const int kinds_, matrices_;
  uint8_t* shared_;
  int warp_;
  uint32_t barriers_;
  int slot_ = 0;
  uint32_t parity_ = 0;
  const uint8_t* next_ = nullptr;  // to ask for
  int left_ = 0;                   // stages of its unit
  int matrix_ = -1, kind_ = -1, tile_ = 0;
};

// Sums of a unit, in the lanes' order: rows lane / 4 and + 8, tokens 2·(lane % 4) and + 1 of a
// tile.
template <int kTokenTiles>
using Sums = float[kTokenTiles][4];

// Adds up the parts of a tile. True for the warp that came last: it has the whole sums.
template <int kTokenTiles>
__device__ __forceinline__ bool add_parts(const MatrixShape& shape, int tile, int part, int tokens,
                                          float4* partial, unsigned* tickets,
                                          Sums<kTokenTiles>& sums) {
  if (shape.parts == 1) return true;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto place = [&](int p, int t) {
    return partial + ((static_cast<size_t>(p) * shape.tiles + tile) * kTokenTiles + t) * 32 + lane;
  };
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    if (t * 8 < tokens) {
      __stcg(place(part, t), make_float4(sums[t][0], sums[t][1], sums[t][2], sums[t][3]));
    }
  }
  __syncwarp();
  unsigned done = 0;
  if (lane == 0) done = add_acquire_release(tickets + tile, 1);
  done = __shfl_sync(~0U, done, 0);
  if (done != static_cast<unsigned>(shape.parts) - 1) return false;
  if (lane == 0) tickets[tile] = 0;
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    if (t * 8 >= tokens) continue;
    float4 parts[kMaxParts];
#pragma unroll
    for (int p = 0; p < kMaxParts; ++p) {
      if (p < shape.parts) parts[p] = __ldcg(place(p, t));
    }
    float4 sum = parts[0];
#pragma unroll
    for (int p = 1; p < kMaxParts; ++p) {
      if (p < shape.parts) {
        sum.x += parts[p].x, sum.y += parts[p].y, sum.z += parts[p].z, sum.w += parts[p].w;
      }
    }
    sums[t][0] = sum.x, sums[t][1] = sum.y, sums[t][2] = sum.z, sums[t][3] = sum.w;
  }
  return true;
}

// This block's share of a matrix times `tokens` rows; `epilogue(sums, tile)` gets every tile.
template <class Format, int kTokenTiles, class Stream, class Epilogue>
__device__ __forceinline__ void multiply(Stream& stream, const MatrixShape& shape,
                                         const Share& share, const Source& source, int tokens,
                                         bool four_bits, float4* partial, unsigned* tickets,
                                         uint8_t* shared, Epilogue epilogue) {
  if (share.first >= shape.tiles) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  uint8_t* buffer = shared + SharedLayout::kInputs;
  auto* rms = reinterpret_cast<float*>(shared + SharedLayout::kRms);
  if (source.norm != nullptr) inverse_rms(source, tokens, rms);

  const int begin = share.begin * Format::kStageColumns;
  const int end = begin + share.stages * Format::kStageColumns;
  const int widest = min(chunk_columns<Format, kTokenTiles>(tokens, kInputBytes), end - begin);
  const int rounds =
      ((shape.tiles - share.first + share.stride - 1) / share.stride + kWarps - 1) / kWarps;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const int tile = share.first + share.stride * (warp + kWarps * round);
    const bool mine = tile < shape.tiles;
    Sums<kTokenTiles> sums = {};
#pragma unroll 1
    for (int first = begin; first < end; first += widest) {
      const int columns = min(widest, end - first);
      const InputLayout layout = input_layout<Format, kTokenTiles>(tokens, columns);
      if (round == 0 || widest < end - begin) {
        __syncthreads();
        stage_inputs<Format, kTokenTiles>(source, tokens, first, columns, rms, four_bits, layout,
                                          buffer);
        __syncthreads();
      }
      if (!mine) continue;
      Inputs<Format::kAct, kTokenTiles> inputs;
      inputs.aux = reinterpret_cast<const float*>(buffer + layout.aux);
      inputs.sums = reinterpret_cast<const float*>(buffer + layout.sums);
      const uint8_t* lane_start = buffer + lane % 4 * 8 * act_bytes(Format::kAct);
      if constexpr (inputs.kFixed) {
        inputs.start[0] = lane_start + lane / 4 * layout.stride;
      } else {
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          // Tokens that are not there stand for the last one; nobody reads their sums.
          inputs.start[t] = lane_start + min(t * 8 + lane / 4, tokens - 1) * layout.stride;
        }
      }
#pragma unroll 1
      for (int column = 0; column < columns; column += Format::kStageColumns) {
        Format::template multiply<kTokenTiles>(stream.wait(), lane, column, inputs, sums);
        stream.release();
      }
    }
    if (mine && add_parts<kTokenTiles>(shape, tile, share.part, tokens, partial, tickets, sums)) {
      epilogue(sums, tile);
    }
  }
}

// Waits for all blocks. What they wrote before is then visible past L1.
__device__ __forceinline__ void grid_barrier(unsigned* arrivals, unsigned& expected) {
  __syncthreads();
  if (threadIdx.x == 0) {
    expected += gridDim.x;
    add_release(arrivals, 1);
    while (load_relaxed(arrivals) < expected) {
    }
    acquire_fence();
  }
  __syncthreads();
}

// Adds a product to the residual stream, and leaves the sums of squares for the next norm.
template <int kTokenTiles>
__device__ __forceinline__ void add_to_residual(const StepArgs& a, const Sums<kTokenTiles>& sums,
                                                int tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = t * 8 + lane % 4 * 2 + i;
      float square = 0.0F;
      if (token < a.rows) {
        float* residual =
            a.residual + static_cast<size_t>(token) * a.hidden + tile * kTileRows + lane / 4;
        const float first = __ldcg(residual) + sums[t][i];
        const float second = __ldcg(residual + 8) + sums[t][2 + i];
        __stcg(residual, first);
        __stcg(residual + 8, second);
        square = fmaf(first, first, second * second);
      }
      for (int step = 4; step < 32; step *= 2) square += __shfl_xor_sync(~0U, square, step);
      if (token < a.rows && lane < 4) {
        __stcg(a.squares + static_cast<size_t>(token) * (a.hidden / kTileRows) + tile, square);
      }
    }
  }
}

// Rotates queries and keys, and writes keys and values to the cache. A tile lies within one head.
template <int kTokenTiles>
__device__ __forceinline__ void place_qkv(const StepArgs& a, int layer,
                                          const Sums<kTokenTiles>& sums, int tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int head = tile * kTileRows / a.head_dim;
  const int dimension = tile * kTileRows % a.head_dim + lane / 4;
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = t * 8 + lane % 4 * 2 + i % 2;
      const int d = dimension + i / 2 * 8;
      const float other = __shfl_xor_sync(~0U, sums[t][i], 4);  // the pair's other dimension
      if (token >= a.rows) continue;
      const StepRow& row = a.row[token];
      float value = sums[t][i];
      if (head < a.heads + a.kv_heads) {
        const float2 turn =
            __ldg(a.rotary + static_cast<size_t>(row.position) * (a.head_dim / 2) + d / 2);
        value = d % 2 == 0 ? value * turn.x - other * turn.y : value * turn.x + other * turn.y;
      }
      if (head < a.heads) {
        __stcg(a.query + (static_cast<size_t>(token) * a.heads + head) * a.head_dim + d, value);
        continue;
      }
      const int kv_head = (head - a.heads) % a.kv_heads;
      const size_t start =
          ((static_cast<size_t>(row.slot) * a.layers + layer) * a.kv_heads + kv_head) *
          a.max_positions * a.head_dim;
      const __half rounded = __float2half_rn(value);
      if (head < a.heads + a.kv_heads) {
        a.keys[start + static_cast<size_t>(row.cache_index) * a.head_dim + d] = rounded;
      } else {
        a.values[start + static_cast<size_t>(d) * a.max_positions + row.cache_index] = rounded;
      }
    }
  }
}

// A tile of gate_up holds eight rows of the gate, then the same eight of up.
template <int kTokenTiles>
__device__ __forceinline__ void silu_product(const StepArgs& a, const Sums<kTokenTiles>& sums,
                                             int tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = t * 8 + lane % 4 * 2 + i;
      if (token >= a.rows) continue;
      const float gate = sums[t][i];
      __stcg(a.mlp + static_cast<size_t>(token) * a.intermediate + tile * 8 + lane / 4,
             gate / (1.0F + __expf(-gate)) * sums[t][2 + i]);
    }
  }
}

// Brings to L2 what the next phases read from memory: norms, and the cache entries that this block
// attends to.
__device__ __forceinline__ void ask_ahead(const StepArgs& a, int layer, MatrixKind kind) {
  const int line = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int norm = 2 * layer + (kind == kO ? 1 : 2);
  if ((kind == kO || kind == kDown) && norm < 2 * a.layers && line * 32 < a.hidden) {
    prefetch_l2(a.norms[norm] + line * 32);
  }
  if (kind != kQkv) return;
  const int unit = static_cast<int>(blockIdx.x);
  if (unit >= a.groups * a.kv_heads) return;
  const RowGroup group = a.group[unit / a.kv_heads];
  const StepRow& row = a.row[group.first + group.count - 1];
  const size_t start =
      ((static_cast<size_t>(row.slot) * a.layers + layer) * a.kv_heads + unit % a.kv_heads) *
      a.max_positions * a.head_dim;
  const int key_lines = row.visible * a.head_dim / 64, value_lines = (row.visible + 63) / 64;
  for (int i = static_cast<int>(threadIdx.x); i < key_lines; i += kThreads) {
    prefetch_l2(a.keys + start + static_cast<size_t>(i) * 64);
  }
  for (int i = static_cast<int>(threadIdx.x); i < value_lines * a.head_dim; i += kThreads) {
    prefetch_l2(a.values + start + static_cast<size_t>(i / value_lines) * a.max_positions +
                i % value_lines * 64);
  }
}

template <class Format, int kTokenTiles>
__global__ void __launch_bounds__(kThreads, 1) step_kernel(const __grid_constant__ StepArgs a) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int matrices = a.layers * kMatrixKinds;
  fill_tables(a.shapes, kMatrixKinds, a.weights, matrices, shared);
  __syncthreads();
  WeightStream<Format> stream(a.shapes, kMatrixKinds, matrices, shared);
  unsigned expected = 0;
#pragma unroll 1
  for (int phase = 0; phase < matrices; ++phase) {
    const int layer = phase / kMatrixKinds;
    const auto kind = static_cast<MatrixKind>(phase % kMatrixKinds);
    if (kind == kO) {
#pragma unroll 1
      for (int unit = static_cast<int>(blockIdx.x); unit < a.groups * a.kv_heads;
           unit += static_cast<int>(gridDim.x)) {
        if (a.head_dim == 128) {
          attend<128>(a, layer, unit, shared + SharedLayout::kInputs);
        } else {
          attend<64>(a, layer, unit, shared + SharedLayout::kInputs);
        }
      }
      grid_barrier(a.arrivals, expected);
    }
    ask_ahead(a, layer, kind);
    Source source{};
    if (kind == kQkv || kind == kGateUp) {
      source = {a.residual, a.hidden, nullptr, a.norms[2 * layer + (kind == kGateUp ? 1 : 0)],
                a.squares,  a.epsilon};
    } else if (kind == kO) {
      source = {a.attention, a.heads * a.head_dim, nullptr, nullptr, nullptr, 0.0F};
    } else {
      source = {a.mlp, a.intermediate, nullptr, nullptr, nullptr, 0.0F};
    }
    multiply<Format, kTokenTiles>(stream, a.shapes[kind], share_of(shared, kind), source, a.rows,
                                  a.four_bits, a.partial, a.tickets, shared,
                                  [&](const Sums<kTokenTiles>& sums, int tile) {
                                    if (kind == kQkv) {
                                      place_qkv<kTokenTiles>(a, layer, sums, tile);
                                    } else if (kind == kGateUp) {
                                      silu_product<kTokenTiles>(a, sums, tile);
                                    } else {
                                      add_to_residual<kTokenTiles>(a, sums, tile);
                                    }
                                  });
    grid_barrier(a.arrivals, expected);
  }
}

template <class Format, int kTokenTiles>
__global__ void __launch_bounds__(kThreads, 1) head_kernel(const __grid_constant__ HeadArgs a) {
  extern __shared__ __align__(128) uint8_t shared[];
  fill_tables(&a.shape, 1, &a.weights, 1, shared);
  __syncthreads();
  WeightStream<Format> stream(&a.shape, 1, 1, shared);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  multiply<Format, kTokenTiles>(
      stream, a.shape, share_of(shared, 0),
      Source{a.residual, a.hidden, a.row, a.norm, a.squares, a.epsilon}, a.rows, a.four_bits,
      a.partial, a.tickets, shared, [&](const Sums<kTokenTiles>& sums, int tile) {
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int token = t * 8 + lane % 4 * 2 + i % 2;
            const int output = tile * kTileRows + lane / 4 + i / 2 * 8;
            if (token < a.rows && output < a.vocabulary) {
              a.logits[static_cast<size_t>(token) * a.vocabulary + output] = sums[t][i];
            }
          }
        }
      });
}

template <class Args>
int launch(void (*kernel)(Args), const Args& args, int blocks, void* stream, bool cooperative) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           SharedLayout::kBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = SharedLayout::kBytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = cooperative ? 1 : 0;
  error = cudaLaunchKernelEx(&config, kernel, args);
  return error != cudaSuccess ? error : cudaGetLastError();
}

template <class Format>
int launch_step(const StepArgs& args, int blocks, void* stream) {
  const auto kernel = args.rows <= 8    ? step_kernel<Format, 1>
                      : args.rows <= 16 ? step_kernel<Format, 2>
                      : args.rows <= 32 ? step_kernel<Format, 4>
                                        : step_kernel<Format, 8>;
  return launch(kernel, args, blocks, stream, true);
}

template <class Format>
int launch_head(const HeadArgs& args, int blocks, void* stream) {
  const auto kernel = args.rows <= 8    ? head_kernel<Format, 1>
                      : args.rows <= 16 ? head_kernel<Format, 2>
                      : args.rows <= 32 ? head_kernel<Format, 4>
                                        : head_kernel<Format, 8>;
  return launch(kernel, args, blocks, stream, false);
}

template <class Format>
Launchers launchers() {
  return {launch_step<Format>, launch_head<Format>};
}

}  // namespace specquant::cuda
