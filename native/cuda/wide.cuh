// The kernels of a pass of more rows than step.cuh takes: one after the other on the stream, each
// started while the one before it ends (programmatic dependent launch). Their results are the bits
// that step.cuh's kernels give.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/architectures.cuh"
#include "cuda/attention.cuh"
#include "cuda/cache_ahead.cuh"
#include "cuda/epilogues.cuh"
#include "cuda/quantize.cuh"
#include "cuda/wide_multiply.cuh"
#include "cuda/wide_qkv.cuh"
#include "cuda/wide_rms.cuh"

namespace specquant::cuda {

constexpr int kAttentionWarps = 8;
constexpr int kQuantizeThreads = 256;

// Codes of a lane's two tokens of token tile t, from column `column` on: [token][every eighth
// column], in the order of TileSums.
__device__ __forceinline__ void put_tile_codes(const CodesOut& out, const float (&values)[2][4],
                                               int rows, int column, int t) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = t * 8 + lane % 4 * 2 + i;
    put_codes<4, 16>(out, values[i], token, column, lane / 4, token < rows);
  }
}

// Tiles of a layer's product that are finished together: with integers as many as have 32 columns
// of the next product's input.
template <class Format>
__device__ __forceinline__ int tiles_together(MatrixKind kind) {
  if (Format::kAct != Act::s8 || kind == kQkv) return 1;
  return kind == kGateUp ? 4 : 2;
}

// What a product of a layer takes.
template <class Format>
__device__ __forceinline__ Inputs wide_inputs(const StepArgs& a, int layer, MatrixKind kind) {
  if constexpr (Format::kAct == Act::s8) {
    const Codes codes = kind == kO                   ? a.attention_codes
                        : kind == kDown              ? a.mlp_codes
                        : layer == 0 && kind == kQkv ? Codes{a.codes, a.scales}
                                                     : a.normed_codes;
    return {reinterpret_cast<const uint8_t*>(codes.codes), codes.scales};
  } else {
    const uint16_t* from = kind == kO                   ? a.attention
                           : kind == kDown              ? a.mlp
                           : layer == 0 && kind == kQkv ? a.first
                                                        : a.normed;
    return {reinterpret_cast<const uint8_t*>(from), nullptr};
  }
}

// A column of the lane's two tokens.
template <int kTokenTiles>
__device__ __forceinline__ void put_two(uint16_t* to, int t, int rows, int column,
                                        const uint16_t (&two)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = t * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i;
    if (token < rows) __stcg(to + activation_index(token, column, kTokenTiles * 8), two[i]);
  }
}

// The end of the products that add to the residual stream, for tiles_together of them.
template <class Format, int kTokenTiles, class SumsAt>
__device__ __forceinline__ void finish_residual(const StepArgs& a, int layer, MatrixKind kind,
                                                SumsAt sums_at, int tile, int t) {
  constexpr bool kBf16 = Format::kAct == Act::bf16, kCodes = Format::kAct == Act::s8;
  constexpr int kTiles = kCodes ? 2 : 1;
  const float* norm = a.norms + static_cast<size_t>(2 * layer + (kind == kO ? 1 : 2)) * a.hidden;
  const bool last = kind == kDown && layer == a.layers - 1;  // the head's input has 16 bits
  float values[2][2 * kTiles] = {};                          // [token][every eighth column]
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    const int own = tile + i;
    add_to_residual(a, norm + own * kTileRows, last ? a.head_bf16 : kBf16, sums_at(i), own, t,
                    a.residual + own * kTileRows, a.hidden, {a.squares, 0},
                    [&](int half, int column, const uint16_t(&two)[2]) {
                      if (kCodes && !last) {
                        for (int k = 0; k < 2; ++k) {
                          values[k][2 * i + half] = __half2float(__ushort_as_half(two[k]));
                        }
                      } else {
                        put_two<kTokenTiles>(a.normed, t, a.rows, column, two);
                      }
                    });
    if (kind == kDown && a.kept != nullptr) {
      keep_residual(a, layer, own, t, a.residual + own * kTileRows, a.hidden);
    }
  }
  if constexpr (kCodes) {
    if (last) return;
    put_tile_codes({a.normed_codes, a.four_bits, kTokenTiles * 8}, values, a.rows, tile * kTileRows,
                   t);
  }
}

// The end of gate_up, for tiles_together of its tiles.
template <class Format, int kTokenTiles, class SumsAt>
__device__ __forceinline__ void finish_gate_up(const StepArgs& a, SumsAt sums_at, int tile, int t,
                                               const float* rms) {
  constexpr bool kBf16 = Format::kAct == Act::bf16, kCodes = Format::kAct == Act::s8;
  constexpr int kTiles = kCodes ? 4 : 1;
  float values[2][kTiles] = {};
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    silu_product(a, kBf16, sums_at(i), tile + i, t, rms, [&](int column, const uint16_t(&two)[2]) {
      if constexpr (kCodes) {
        for (int k = 0; k < 2; ++k) {
          values[k][i] = __half2float(__ushort_as_half(two[k]));
        }
      } else {
        put_two<kTokenTiles>(a.mlp, t, a.rows, column, two);
      }
    });
  }
  if constexpr (kCodes) {
    put_tile_codes({a.mlp_codes, a.four_bits, kTokenTiles * 8}, values, a.rows, tile * 8, t);
  }
}

template <class Format, int kTokenTiles>
__device__ __forceinline__ void run_wide_layer(const StepArgs& a, int layer, MatrixKind kind) {
  extern __shared__ __align__(128) uint8_t shared[];
  auto& memory = *reinterpret_cast<WideMemory<Format, kTokenTiles>*>(shared);
  multiply_wide<Format, kTokenTiles>(
      a.shapes[kind], a.weights[layer * kMatrixKinds + kind], wide_inputs<Format>(a, layer, kind),
      a.rows, a.exchange, memory,
      [&] {
        const int thread = static_cast<int>(threadIdx.x);
        if (kind == kQkv && thread < a.rows) memory.row[thread] = a.row[thread];
        if (kind == kQkv || kind == kGateUp) {
          wide_inverse_rms(a.squares, a.hidden, a.epsilon, a.rows, memory.rms);
        }
      },
      tiles_together<Format>(kind),
      [&](auto sums_at, int tile, int t) {
        if (kind == kQkv) {
          finish_qkv(a, layer, sums_at, tile, t, memory.row, memory.rms);
        } else if (kind == kGateUp) {
          finish_gate_up<Format, kTokenTiles>(a, sums_at, tile, t, memory.rms);
        } else {
          finish_residual<Format, kTokenTiles>(a, layer, kind, sums_at, tile, t);
        }
      });
}

template <class Format, int kTokenTiles>
__device__ __forceinline__ void run_wide_head(const HeadArgs& a) {
  extern __shared__ __align__(128) uint8_t shared[];
  auto& memory = *reinterpret_cast<WideMemory<Format, kTokenTiles>*>(shared);
  Inputs inputs{reinterpret_cast<const uint8_t*>(a.normed), a.scales};
  if constexpr (Format::kAct == Act::s8) inputs.data = reinterpret_cast<const uint8_t*>(a.codes);
  multiply_wide<Format, kTokenTiles>(
      a.shape, a.weights, inputs, a.rows, a.exchange, memory,
      [&] { wide_inverse_rms(a.squares, a.hidden, a.epsilon, a.rows, memory.rms); }, 1,
      [&](auto sums_at, int tile, int t) { place_logits(a, sums_at(0), tile, t, memory.rms); });
}

// Brings to L2 the first cache entries that a unit attends to (attention.cuh), no more than L2 has
// room for beside those of the other units.
__device__ __forceinline__ void ask_for_unit(const StepArgs& a, int layer, int unit) {
  constexpr int kMostEntries = 256;
  const RowGroup group = a.group[unit / a.kv_heads];
  const StepRow& row = a.row[group.first + group.count - 1];
  ask_for_entries(a, layer, unit, row, min(row.visible, kMostEntries),
                  static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}

template <class Format>
__device__ __forceinline__ void run_wide_attention(const StepArgs& a, int layer) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr bool kBf16 = Format::kAct == Act::bf16;
  auto& memory = *reinterpret_cast<AttentionMemory*>(shared);
  const int wide_rows = a.wide_rows;
  const auto put = [&](int row, int column, uint16_t value) {
    if constexpr (Format::kAct == Act::s8) {
      const float x[1] = {__half2float(__ushort_as_half(value))};
      put_codes<1, 16>({a.attention_codes, a.four_bits, wide_rows}, x, row, column / 32 * 32,
                       column % 32, true);
    } else {
      __stcg(a.attention + activation_index(row, column, wide_rows), value);
    }
  };
  const int unit = static_cast<int>(blockIdx.x);
  let_next_kernel_start();
  ask_for_unit(a, layer, unit);
  wait_for_kernel_before();
  if (a.head_dim == 128) {
    attend<128, kAttentionWarps>(a, layer, unit, kBf16, a.row, a.group, memory, put);
  } else {
    attend<64, kAttentionWarps>(a, layer, unit, kBf16, a.row, a.group, memory, put);
  }
}

template <class Format, int kTokenTiles>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_layer_kernel(const __grid_constant__ StepArgs a, int layer, MatrixKind kind) {
  if constexpr (compiled_here<Kernels::sm_90>()) {
    run_wide_layer<Format, kTokenTiles>(a, layer, kind);
  }
}

template <class Format, int kTokenTiles>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_head_kernel(const __grid_constant__ HeadArgs a) {
  if constexpr (compiled_here<Kernels::sm_90>()) run_wide_head<Format, kTokenTiles>(a);
}

// A template, so that each file of kernels has its own.
template <class Format>
__global__ void __launch_bounds__(kAttentionWarps * 32, 2)
    wide_attention_kernel(const __grid_constant__ StepArgs a, int layer) {
  if constexpr (compiled_here<Kernels::sm_90>()) run_wide_attention<Format>(a, layer);
}

template <class Format>
__global__ void wide_quantize_kernel(const uint16_t* from, int rows, int wide_rows, int columns,
                                     bool four_bits, int8_t* codes, float* scales) {
  if constexpr (compiled_here<Kernels::sm_90>()) {
    let_next_kernel_start();
    wait_for_kernel_before();
    quantize(from, rows, columns, four_bits, codes, scales, wide_rows);
  }
}

// Launches kernels on a stream, as dependents of one another, up to the first error.
class WideLauncher {
 public:
  explicit WideLauncher(void* stream) : stream_(static_cast<cudaStream_t>(stream)) {}

  template <class... Args>
  void launch(void (*kernel)(Args...), int blocks, int threads, std::size_t shared,
              std::type_identity_t<Args>... args) {
    if (error_ != cudaSuccess) return;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared;
    config.stream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    error_ = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared));
    if (error_ == cudaSuccess) error_ = cudaLaunchKernelEx(&config, kernel, args...);
  }

  // A product of `shape`: so many groups of blocks that none has more than kWideUnits units, in
  // whole rounds of the GPU's multiprocessors.
  template <class Memory, class... Args>
  void launch_product(void (*kernel)(Args...), const MatrixShape& shape, int multiprocessors,
                      std::type_identity_t<Args>... args) {
    const int together = std::max(1, multiprocessors / shape.slices);
    const int units = units_of(shape);
    const int rounds = (units + together * kWideUnits - 1) / (together * kWideUnits);
    const int groups = std::min(units, together * rounds);
    launch(kernel, groups * shape.slices, kWideThreads, sizeof(Memory), args...);
  }

  int error() const { return error_; }

 private:
  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

template <class Format, int kTokenTiles>
int launch_wide_step(const StepArgs& a, int multiprocessors, void* stream) {
  WideLauncher launcher(stream);
  if constexpr (Format::kAct == Act::s8) {  // of the first input: kernels leave those that follow
    launcher.launch(wide_quantize_kernel<Format>, 2 * multiprocessors, kQuantizeThreads, 0, a.first,
                    a.rows, a.wide_rows, a.first_padded, a.four_bits, a.codes, a.scales);
  }
  for (int phase = 0; phase < a.layers * kMatrixKinds; ++phase) {
    const int layer = phase / kMatrixKinds;
    const auto kind = static_cast<MatrixKind>(phase % kMatrixKinds);
    if (kind == kO) {
      launcher.launch(wide_attention_kernel<Format>, a.groups * a.kv_heads, kAttentionWarps * 32,
                      sizeof(AttentionMemory), a, layer);
    }
    launcher.launch_product<WideMemory<Format, kTokenTiles>>(
        wide_layer_kernel<Format, kTokenTiles>, a.shapes[kind], multiprocessors, a, layer, kind);
  }
  return launcher.error();
}

template <class Format, int kTokenTiles>
int launch_wide_head(const HeadArgs& a, int multiprocessors, void* stream) {
  WideLauncher launcher(stream);
  if constexpr (Format::kAct == Act::s8) {
    launcher.launch(wide_quantize_kernel<Format>, 2 * multiprocessors, kQuantizeThreads, 0,
                    a.normed, a.rows, a.wide_rows, a.hidden_padded, false, a.codes, a.scales);
  }
  launcher.launch_product<WideMemory<Format, kTokenTiles>>(wide_head_kernel<Format, kTokenTiles>,
                                                           a.shape, multiprocessors, a);
  return launcher.error();
}

}  // namespace specquant::cuda
