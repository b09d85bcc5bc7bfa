// The kernels of a pass of few rows: all layers, and the head's product.
//
// A grid of one block a multiprocessor stays for the whole pass; phases are parted by a barrier of
// the grid.
#pragma once

#include "cuda/architectures.cuh"
#include "cuda/attention.cuh"
#include "cuda/cache_ahead.cuh"
#include "cuda/epilogues.cuh"
#include "cuda/quantize.cuh"

namespace specquant::cuda {

// Waits for all blocks. What they wrote before is then visible past L1.
__device__ __forceinline__ void grid_barrier(unsigned* arrivals, unsigned& expected) {
  __syncthreads();
  if (threadIdx.x == 0) {
    expected += gridDim.x;
    add_release(arrivals, 1);
    while (load_acquire(arrivals) < expected) {
    }
  }
  __syncthreads();
}

// Brings to L2 the cache entries that this block will attend to.
template <class Memory>
__device__ __forceinline__ void ask_for_cache(const StepArgs& a, int layer, const Memory& memory) {
  const int block = static_cast<int>(blockIdx.x), unit = block / memory.unit_blocks;
  if (unit >= a.groups * a.kv_heads) return;
  const RowGroup group = memory.group[unit / a.kv_heads];
  const StepRow& row = memory.row[group.first + group.count - 1];
  ask_for_entries(a, layer, unit, row, row.visible,
                  static_cast<int>(threadIdx.x) + block % memory.unit_blocks * kThreads,
                  memory.unit_blocks * kThreads);
}

// Fetches the weights of a norm for the block's own tiles, in the background.
template <class Memory>
__device__ __forceinline__ void ask_for_norm(const StepArgs& a, int norm, Memory& memory) {
  const int own = static_cast<int>(threadIdx.x) / kTileRows;
  const int column =
      (static_cast<int>(blockIdx.x) + own * static_cast<int>(gridDim.x)) * kTileRows +
      static_cast<int>(threadIdx.x) % kTileRows;
  if (own < kResidualTiles && column < a.hidden) {
    copy_word(&memory.norm[own][threadIdx.x % kTileRows],
              a.norms + static_cast<size_t>(norm) * a.hidden + column);
  }
}

// What does not change during the pass.
template <class Memory>
__device__ __forceinline__ void fill_memory(const StepArgs& a, Memory& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < a.rows) memory.row[thread] = a.row[thread];
  if (thread < a.groups) memory.group[thread] = a.group[thread];
  if (thread == kThreads - 1) {
    int longest = 0;
    for (int i = 0; i < a.rows; ++i) longest = max(longest, a.row[i].visible);
    memory.unit_blocks = blocks_of_unit(a.groups * a.kv_heads, longest);
  }
  const int pairs = a.head_dim / 2;
  for (int i = thread; i < a.rows * pairs; i += kThreads) {
    memory.rotary[i / pairs][i % pairs] =
        a.rotary[static_cast<size_t>(a.row[i / pairs].position) * pairs + i % pairs];
  }
  for (int i = thread; i < kResidualTiles * a.rows * kTileRows; i += kThreads) {
    const int row = i / kTileRows % a.rows, own = i / (kTileRows * a.rows);
    const int column =
        (static_cast<int>(blockIdx.x) + own * static_cast<int>(gridDim.x)) * kTileRows +
        i % kTileRows;
    if (column < a.hidden) {
      memory.residual[own][row][i % kTileRows] =
          a.residual[static_cast<size_t>(row) * a.hidden + column];
    }
  }
}

// Attention of all units; needs a barrier of the grid behind it.
template <int kHeadDim, class Memory, class Barrier>
__device__ __forceinline__ void run_attention(const StepArgs& a, int layer, bool bf16,
                                              Memory& memory, Barrier barrier) {
  const int units = a.groups * a.kv_heads, block = static_cast<int>(blockIdx.x);
  const auto put = [&](int row, int column, uint16_t value) {
    __stcg(a.attention + activation_index(row, column, 0), value);
  };
  const int unit_blocks = memory.unit_blocks;
  if (unit_blocks == 1) {
#pragma unroll 1
    for (int unit = block; unit < units; unit += static_cast<int>(gridDim.x)) {
      attend<kHeadDim, kWarps>(a, layer, unit, bf16, memory.row, memory.group, memory.attention,
                               put);
    }
    return;
  }
  if (block < units * unit_blocks) {
    const int unit = block / unit_blocks;
    attend_teams<kHeadDim, kWarps>(a, layer, unit, block % unit_blocks, unit_blocks, memory.row,
                                   memory.group, memory.attention.tail, a.attention_parts[unit]);
  }
  barrier();
  put_teams_together<kHeadDim, kWarps>(a, bf16, memory.row, memory.group, put);
}

template <Kernels kKernels, class Format, int kTokenTiles>
__device__ __forceinline__ void run_layers(const StepArgs& a) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr bool kCodes = Format::kAct == Act::s8;
  constexpr bool kBf16 = Format::kAct == Act::bf16;
  using Stream = typename Streams<kKernels>::template Stream<Format, batch_of(kTokenTiles)>;
  auto& memory = *reinterpret_cast<StepMemory<kKernels>*>(shared);
  const int matrices = a.layers * kMatrixKinds;
  fill_tables<Format>(a.shapes, kMatrixKinds, a.weights, matrices, memory.stream);
  __syncthreads();
  Stream stream(kMatrixKinds, matrices, memory.stream);
  fill_memory(a, memory);
  __syncthreads();
  const auto squares_in = [&](void* room) {
    return Squares(a.squares, a.rows, a.hidden, kWarps, room, Partials<kTokenTiles>::kSetBytes);
  };
  unsigned expected = 0;
  const auto barrier = [&] { grid_barrier(a.arrivals, expected); };
  int turn = 0;
#pragma unroll 1
  for (int phase = 0; phase < matrices; ++phase) {
    const int layer = phase / kMatrixKinds;
    const auto kind = static_cast<MatrixKind>(phase % kMatrixKinds);
    if (kind == kO) {
      if (a.head_dim == 128) {
        run_attention<128>(a, layer, kBf16, memory, barrier);
      } else {
        run_attention<64>(a, layer, kBf16, memory, barrier);
      }
      barrier();
    }
    const uint16_t* source = source_of(a, layer, kind);
    Inputs inputs{reinterpret_cast<const uint8_t*>(source), a.scales};
    if constexpr (kCodes) {
      quantize(source, a.rows, columns_of(a, layer, kind), a.four_bits, a.codes, a.scales, 0);
      barrier();
      inputs.data = reinterpret_cast<const uint8_t*>(a.codes);
    }
    multiply<Format, kTokenTiles>(
        stream, memory.stream.share[kind], a.shapes[kind], inputs, a.rows,
        memory.constants[threadIdx.x / 32], partials_of<kTokenTiles>(memory), turn,
        [&](void* room) {
          if (kind == kQkv) ask_for_cache(a, layer, memory);
          if (kind == kQkv || kind == kGateUp) {
            ask_for_squares(squares_in(room));
            ask_for_norm(a, 2 * layer + (kind == kQkv ? 1 : 2), memory);
          }
        },
        [&](void* room) {
          if (kind == kQkv || kind == kGateUp) {
            inverse_rms(squares_in(room), a.epsilon, memory.rms);
          }
        },
        [&](const TileSums& sums, int tile, int index, int t) {
          if (kind == kQkv) {
            place_qkv(a, layer, sums, tile, t, memory.row, memory.rms,
                      [&](int token, int pair) { return memory.rotary[token][pair]; });
          } else if (kind == kGateUp) {
            silu_product(a, kBf16, sums, tile, t, memory.rms,
                         [&](int, int token, int column, uint16_t value) {
                           __stcg(a.mlp + activation_index(token, column, 0), value);
                         });
          } else {
            const bool last = kind == kDown && layer == a.layers - 1;
            add_to_residual(a, memory.norm[index], last ? a.head_bf16 : kBf16, sums, tile, t,
                            memory.residual[index][0], kTileRows,
                            [&](int, int token, int column, uint16_t first, uint16_t second) {
                              uint16_t* to = a.normed + activation_index(token, column, 0);
                              __stcg(to, first);
                              __stcg(to + 8, second);
                            });
            if (kind == kDown && a.kept != nullptr) {
              keep_residual(a, layer, tile, t, memory.residual[index][0], kTileRows);
            }
          }
        });
    copies_done();
    barrier();
  }
}

template <Kernels kKernels, class Format, int kTokenTiles>
__device__ __forceinline__ void run_head(const HeadArgs& a) {
  extern __shared__ __align__(128) uint8_t shared[];
  using Stream = typename Streams<kKernels>::template Stream<Format, batch_of(kTokenTiles)>;
  auto& memory = *reinterpret_cast<StepMemory<kKernels>*>(shared);
  fill_tables<Format>(&a.shape, 1, &a.weights, 1, memory.stream);
  __syncthreads();
  Stream stream(1, 1, memory.stream);
  Inputs inputs{reinterpret_cast<const uint8_t*>(a.normed), a.scales};
  if constexpr (Format::kAct == Act::s8) {
    unsigned expected = 0;
    quantize(a.normed, a.rows, a.hidden_padded, false, a.codes, a.scales, 0);
    grid_barrier(a.arrivals, expected);
    inputs.data = reinterpret_cast<const uint8_t*>(a.codes);
  }
  const auto squares_in = [&](void* room) {
    return Squares(a.squares, a.rows, a.hidden, kWarps, room, Partials<kTokenTiles>::kSetBytes);
  };
  int turn = 0;
  multiply<Format, kTokenTiles>(
      stream, memory.stream.share[0], a.shape, inputs, a.rows, memory.constants[threadIdx.x / 32],
      partials_of<kTokenTiles>(memory), turn,
      [&](void* room) { ask_for_squares(squares_in(room)); },
      [&](void* room) { inverse_rms(squares_in(room), a.epsilon, memory.rms); },
      [&](const TileSums& sums, int tile, int, int t) {
        place_logits(a, sums, tile, t, memory.rms);
      });
}

template <Kernels kKernels, class Format, int kTokenTiles>
__global__ void __launch_bounds__(kThreads, 1) step_kernel(const __grid_constant__ StepArgs a) {
  if constexpr (compiled_here<kKernels>()) run_layers<kKernels, Format, kTokenTiles>(a);
}

template <Kernels kKernels, class Format, int kTokenTiles>
__global__ void __launch_bounds__(kThreads, 1) head_kernel(const __grid_constant__ HeadArgs a) {
  if constexpr (compiled_here<kKernels>()) run_head<kKernels, Format, kTokenTiles>(a);
}

template <class Args>
int launch(void (*kernel)(Args), std::size_t shared, const Args& args, int blocks, void* stream) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared));
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaLaunchKernelEx(&config, kernel, args);
  return error != cudaSuccess ? error : cudaGetLastError();
}

template <Kernels kKernels, class Format>
int launch_narrow_step(const StepArgs& args, int blocks, void* stream) {
  return launch(
      args.rows <= 8 ? step_kernel<kKernels, Format, 1> : step_kernel<kKernels, Format, 2>,
      sizeof(StepMemory<kKernels>), args, blocks, stream);
}

template <Kernels kKernels, class Format>
int launch_narrow_head(const HeadArgs& args, int blocks, void* stream) {
  return launch(
      args.rows <= 8 ? head_kernel<kKernels, Format, 1> : head_kernel<kKernels, Format, 2>,
      sizeof(StepMemory<kKernels>), args, blocks, stream);
}

}  // namespace specquant::cuda
