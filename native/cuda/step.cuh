// The kernels of a pass of few rows: all layers, and the head's product.
//
// A grid of one block a multiprocessor stays for the whole pass; phases are parted by a barrier of
// the grid.
#pragma once

#include "cuda/architectures.cuh"
#include "cuda/attention.cuh"
#include "cuda/cache_ahead.cuh"
#include "cuda/epilogues.cuh"
#include "cuda/handover.cuh"
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

// What a product of a layer takes, and the sums of squares of its rows.
__device__ __forceinline__ const uint16_t* source_of(const StepArgs& a, int layer,
                                                     MatrixKind kind) {
  const Handover& h = a.handover;
  if (kind == kQkv && layer == 0) return a.first;
  uint16_t* field = kind == kQkv      ? h.behind
                    : kind == kO      ? h.attention
                    : kind == kGateUp ? h.before_mlp
                                      : h.mlp;
  return handed_over(h, field, kind == kQkv ? layer - 1 : layer).words;
}
__device__ __forceinline__ const float* squares_of(const StepArgs& a, int layer, MatrixKind kind) {
  const Handover& h = a.handover;
  if (kind == kGateUp) return handed_over(h, h.squares_before_mlp, layer).words;
  return layer == 0 ? a.squares : handed_over(h, h.squares_behind, layer - 1).words;
}

// Where the residual stream goes as the next product's input: at last, as the head's.
struct Residual {
  HandedOver<uint16_t> normed;
  HandedOver<float> squares;
  bool last;
};
__device__ __forceinline__ Residual residual_behind(const StepArgs& a, int layer, MatrixKind kind) {
  const Handover& h = a.handover;
  if (kind == kDown && layer == a.layers - 1) return {{a.normed, 0}, {a.squares, 0}, true};
  return {handed_over(h, kind == kO ? h.before_mlp : h.behind, layer),
          handed_over(h, kind == kO ? h.squares_before_mlp : h.squares_behind, layer), false};
}

// The codes of a product's input. Two products that follow one another have different memory, since
// blocks may still read the former's.
__device__ __forceinline__ Codes codes_of(const StepArgs& a, MatrixKind kind) {
  return kind == kQkv      ? Codes{a.codes, a.scales}
         : kind == kO      ? a.attention_codes
         : kind == kGateUp ? a.normed_codes
                           : a.mlp_codes;
}

// The first of a lane's two tokens of a token tile.
__device__ __forceinline__ int token_of(int t) {
  return t * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
}

// Marks what blocks will hand to one another in the first layer.
__device__ __forceinline__ void mark_first_layer(const StepArgs& a, int unit_blocks) {
  const Handover& h = a.handover;
  const int threads = static_cast<int>(gridDim.x) * kThreads;
  const int thread = static_cast<int>(threadIdx.x * gridDim.x + blockIdx.x);
  const int count = a.rows * (a.hidden / kTileRows);
  mark_columns(h.attention, a.rows, a.heads * a.head_dim, thread, threads);
  mark_columns(h.before_mlp, a.rows, a.hidden, thread, threads);
  mark_columns(h.mlp, a.rows, a.intermediate, thread, threads);
  mark_columns(h.behind, a.rows, a.hidden, thread, threads);
  mark_words(h.squares_before_mlp, count, thread, threads);
  mark_words(h.squares_behind, count, thread, threads);
  if (unit_blocks > 1) mark_teams(h.attention_parts, a.groups * a.kv_heads, thread, threads);
}

// Brings to L2 the cache entries that a layer will attend to.
template <class Memory>
__device__ __forceinline__ void ask_for_cache(const StepArgs& a, int layer, int unit_blocks,
                                              const Memory& memory) {
  const int blocks = static_cast<int>(gridDim.x);
  for (int i = static_cast<int>(blockIdx.x); i < a.groups * a.kv_heads * unit_blocks; i += blocks) {
    const int unit = i / unit_blocks;
    const RowGroup group = memory.group[unit / a.kv_heads];
    const StepRow& row = memory.row[group.first + group.count - 1];
    ask_for_entries(a, layer, unit, row, row.visible,
                    static_cast<int>(threadIdx.x) + i % unit_blocks * kThreads,
                    unit_blocks * kThreads);
  }
}

// Attention of all units, by one block each, or by several that hand over what they find.
template <int kHeadDim, class Memory, class Put>
__device__ __forceinline__ void attend_all(const StepArgs& a, int layer, int unit_blocks, bool bf16,
                                           Memory& memory, Put put) {
  const int units = a.groups * a.kv_heads, block = static_cast<int>(blockIdx.x);
  if (unit_blocks == 1) {
#pragma unroll 1
    for (int unit = block; unit < units; unit += static_cast<int>(gridDim.x)) {
      attend<kHeadDim, kWarps>(a, layer, unit, bf16, memory.row, memory.group, memory.attention,
                               put);
    }
  } else if (block < units * unit_blocks) {
    const int unit = block / unit_blocks;
    const auto parts = handed_over(a.handover, a.handover.attention_parts, layer);
    attend_teams<kHeadDim, kWarps>(
        a, layer, unit, block % unit_blocks, unit_blocks, memory.row, memory.group,
        memory.attention.tail, parts.words[unit], [&](float* to, float value) {
          HandedOver<float>{to, parts.other}.put(0, __float_as_uint(value));
        });
  }
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
  int longest = 0;
  for (int i = 0; i < a.rows; ++i) longest = max(longest, memory.row[i].visible);
  const int unit_blocks = blocks_of_unit(a.groups * a.kv_heads, longest);
  mark_first_layer(a, unit_blocks);
  constexpr size_t kRoom = Partials<kTokenTiles>::kSetBytes;
  unsigned expected = 0;
  const auto barrier = [&] { grid_barrier(a.arrivals, expected); };
  int turn = 0;
#pragma unroll 1
  for (int phase = 0; phase < matrices; ++phase) {
    const int layer = phase / kMatrixKinds;
    const auto kind = static_cast<MatrixKind>(phase % kMatrixKinds);
    if (kind == kO) {
      barrier();
      const auto attention = handed_over(a.handover, a.handover.attention, layer);
      const auto put = [&](int row, int column, uint16_t value) {
        hand_over(attention, row, column, value);
      };
      if (a.head_dim == 128) {
        attend_all<128>(a, layer, unit_blocks, kBf16, memory, put);
      } else {
        attend_all<64>(a, layer, unit_blocks, kBf16, memory, put);
      }
      if (unit_blocks > 1) {
        put_all_handed_over<kWarps>(
            a, kBf16, memory.row, memory.group,
            handed_over(a.handover, a.handover.attention_parts, layer).words, put);
      }
      __syncthreads();
    }
    const uint16_t* source = source_of(a, layer, kind);
    Inputs inputs{reinterpret_cast<const uint8_t*>(source), nullptr};
    if constexpr (kCodes) {
      const Codes codes = codes_of(a, kind);
      quantize(source, a.rows, columns_of(a, layer, kind), a.four_bits, codes.codes, codes.scales,
               0);
      barrier();
      inputs = {reinterpret_cast<const uint8_t*>(codes.codes), codes.scales};
    }
    const bool normed = kind == kQkv || kind == kGateUp;
    const auto squares = [&](void* room) {
      return squares_at(squares_of(a, layer, kind), a.rows, a.hidden, room, kRoom);
    };
    multiply<Format, kTokenTiles>(
        stream, memory.stream.share[kind], a.shapes[kind], inputs, a.rows,
        memory.constants[threadIdx.x / 32], partials_of<kTokenTiles>(memory), turn,
        [&](void* room) {
          if (!normed) return;
          if (kind == kQkv) ask_for_cache(a, layer, unit_blocks, memory);
          ask_for_squares(squares(room));
          ask_for_norm(a, 2 * layer + (kind == kQkv ? 1 : 2), memory);
        },
        [&](void* room) {
          if (normed) inverse_rms(squares(room), a.epsilon, memory.rms);
        },
        [&](const TileSums& sums, int tile, int index, int t) {
          if (kind == kQkv) {
            place_qkv(a, layer, sums, tile, t, memory.row, memory.rms,
                      [&](int token, int pair) { return memory.rotary[token][pair]; });
          } else if (kind == kGateUp) {
            silu_product(a, kBf16, sums, tile, t, memory.rms,
                         [&](int column, const uint16_t(&two)[2]) {
                           hand_over<8>(handed_over(a.handover, a.handover.mlp, layer), token_of(t),
                                        a.rows, column, two[0], two[1]);
                         });
          } else {
            const Residual to = residual_behind(a, layer, kind);
            add_to_residual(a, memory.norm[index], to.last ? a.head_bf16 : kBf16, sums, tile, t,
                            memory.residual[index][0], kTileRows, to.squares,
                            [&](int, int column, const uint16_t(&two)[2]) {
                              hand_over<8>(to.normed, token_of(t), a.rows, column, two[0], two[1]);
                            });
            if (kind == kDown && a.kept != nullptr) {
              keep_residual(a, layer, tile, t, memory.residual[index][0], kTileRows);
            }
          }
        });
    copies_done();
    __syncthreads();
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
  constexpr size_t kRoom = Partials<kTokenTiles>::kSetBytes;
  const auto squares = [&](void* room) {
    return squares_at(a.squares, a.rows, a.hidden, room, kRoom);
  };
  int turn = 0;
  multiply<Format, kTokenTiles>(
      stream, memory.stream.share[0], a.shape, inputs, a.rows, memory.constants[threadIdx.x / 32],
      partials_of<kTokenTiles>(memory), turn, [&](void* room) { ask_for_squares(squares(room)); },
      [&](void* room) { inverse_rms(squares(room), a.epsilon, memory.rms); },
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
