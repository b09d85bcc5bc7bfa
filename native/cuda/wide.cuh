// The kernels of a pass of more rows than step.cuh takes: one after the other on the stream, each
// started while the one before it ends (programmatic dependent launch). Their results are the bits
// that step.cuh's kernels give.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/attention.cuh"
#include "cuda/epilogues.cuh"
#include "cuda/quantize.cuh"
#include "cuda/wide_multiply.cuh"

namespace specquant::cuda {

constexpr int kAttentionWarps = 8;
constexpr int kQuantizeThreads = 256;

template <class Format, int kTokenTiles>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_layer_kernel(const __grid_constant__ StepArgs a, int layer, MatrixKind kind) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr bool kBf16 = Format::kAct == Act::bf16;
  auto& memory = *reinterpret_cast<WideMemory<Format, kTokenTiles>*>(shared);
  Inputs inputs{reinterpret_cast<const uint8_t*>(source_of(a, layer, kind)), a.scales};
  if constexpr (Format::kAct == Act::s8) inputs.data = reinterpret_cast<const uint8_t*>(a.codes);
  const float* norm = a.norms + static_cast<size_t>(2 * layer + (kind == kO ? 1 : 2)) * a.hidden;
  multiply_wide<Format, kTokenTiles>(
      a.shapes[kind], a.weights[layer * kMatrixKinds + kind], inputs, a.rows, a.exchange, memory,
      [&] {
        if (kind == kQkv || kind == kGateUp) {
          inverse_rms<kWideWarps, 4>(a.squares, a.hidden, a.epsilon, a.rows, memory.rms);
        }
      },
      [&](const TileSums& sums, int tile, int t) {
        if (kind == kQkv) {
          place_qkv(a, layer, sums, tile, t, a.row, memory.rms, [&](int token, int pair) {
            return __ldg(a.rotary + static_cast<size_t>(a.row[token].position) * (a.head_dim / 2) +
                         pair);
          });
        } else if (kind == kGateUp) {
          silu_product(a, kBf16, sums, tile, t, memory.rms);
        } else {
          const bool last = kind == kDown && layer == a.layers - 1;
          add_to_residual(a, norm + tile * kTileRows, last ? a.head_bf16 : kBf16, sums, tile, t,
                          a.residual + tile * kTileRows, a.hidden);
          if (kind == kDown && a.kept != nullptr) {
            keep_residual(a, layer, tile, t, a.residual + tile * kTileRows, a.hidden);
          }
        }
      });
}

template <class Format, int kTokenTiles>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_head_kernel(const __grid_constant__ HeadArgs a) {
  extern __shared__ __align__(128) uint8_t shared[];
  auto& memory = *reinterpret_cast<WideMemory<Format, kTokenTiles>*>(shared);
  Inputs inputs{reinterpret_cast<const uint8_t*>(a.normed), a.scales};
  if constexpr (Format::kAct == Act::s8) inputs.data = reinterpret_cast<const uint8_t*>(a.codes);
  multiply_wide<Format, kTokenTiles>(
      a.shape, a.weights, inputs, a.rows, a.exchange, memory,
      [&] { inverse_rms<kWideWarps, 4>(a.squares, a.hidden, a.epsilon, a.rows, memory.rms); },
      [&](const TileSums& sums, int tile, int t) { place_logits(a, sums, tile, t, memory.rms); });
}

// A template, so that each file of kernels has its own.
template <class Format>
__global__ void __launch_bounds__(kAttentionWarps * 32, 2)
    wide_attention_kernel(const __grid_constant__ StepArgs a, int layer) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr bool kBf16 = Format::kAct == Act::bf16;
  auto& memory = *reinterpret_cast<AttentionMemory*>(shared);
  const int unit = static_cast<int>(blockIdx.x);
  let_next_kernel_start();
  wait_for_kernel_before();
  if (a.head_dim == 128) {
    attend<128, kAttentionWarps>(a, layer, unit, kBf16, a.row, a.group, memory);
  } else {
    attend<64, kAttentionWarps>(a, layer, unit, kBf16, a.row, a.group, memory);
  }
}

template <class Format>
__global__ void wide_quantize_kernel(const uint16_t* from, int rows, int columns, bool four_bits,
                                     int8_t* codes, float* scales) {
  let_next_kernel_start();
  wait_for_kernel_before();
  quantize(from, rows, columns, four_bits, codes, scales);
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

  // A product of `shape`: so many groups of blocks that none has more than kWideTiles tiles, in
  // whole rounds of the GPU's multiprocessors.
  template <class Memory, class... Args>
  void launch_product(void (*kernel)(Args...), const MatrixShape& shape, int multiprocessors,
                      std::type_identity_t<Args>... args) {
    const int together = std::max(1, multiprocessors / shape.slices);
    const int rounds = (shape.tiles + together * kWideTiles - 1) / (together * kWideTiles);
    const int groups = std::min(shape.tiles, together * rounds);
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
  for (int phase = 0; phase < a.layers * kMatrixKinds; ++phase) {
    const int layer = phase / kMatrixKinds;
    const auto kind = static_cast<MatrixKind>(phase % kMatrixKinds);
    if (kind == kO) {
      launcher.launch(wide_attention_kernel<Format>, a.groups * a.kv_heads, kAttentionWarps * 32,
                      sizeof(AttentionMemory), a, layer);
    }
    if constexpr (Format::kAct == Act::s8) {
      launcher.launch(wide_quantize_kernel<Format>, 2 * multiprocessors, kQuantizeThreads, 0,
                      source_of(a, layer, kind), a.rows, columns_of(a, layer, kind), a.four_bits,
                      a.codes, a.scales);
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
                    a.normed, a.rows, a.hidden_padded, false, a.codes, a.scales);
  }
  launcher.launch_product<WideMemory<Format, kTokenTiles>>(wide_head_kernel<Format, kTokenTiles>,
                                                           a.shape, multiprocessors, a);
  return launcher.error();
}

}  // namespace specquant::cuda
