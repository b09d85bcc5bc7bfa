#include "cuda/int4_multiply.h"

namespace specquant::cuda {
namespace {

constexpr int kWarps = 8;       // each sums a part of the columns
constexpr int kTileTokens = 4;  // of one product
constexpr int kTokenTiles = 4;  // of one block
constexpr int kBlockTokens = kTileTokens * kTokenTiles;

// C += A·B, 16 x 8 x 64, unsigned by signed 4-bit integers, 32-bit sums (PTX ISA, mma.m16n8k64).
__device__ __forceinline__ void mma_u4s4(int32_t (&c)[4], const uint4& a, const uint2& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

// Activations have a scale for each 32 columns and a product takes 64, so the two halves' sums must
// stay apart: column n of B is token n / 2 in half n % 2 of the columns, and zeros in the other.
__device__ __forceinline__ uint2 operand(const Int4Activations& x, int first_token, int pair) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int token = first_token + lane / 8, half = lane / 4 % 2;
  if (token >= x.tokens) return make_uint2(0, 0);
  const size_t at = static_cast<size_t>(token) * (x.columns / 8) + pair * 8 + half * 4 + lane % 4;
  const uint32_t word = x.words[at];
  return half == 0 ? make_uint2(word, 0) : make_uint2(0, word);
}

__device__ __forceinline__ size_t stage_offset(size_t stage, int group) {
  return stage * (1024 + 128 / group * 64);
}

// Sums of 64 columns for rows l/4 (0, 1) and l/4 + 8 (2, 3) and token l%4 of the tile: of the first
// 32 columns (0, 2) and the last (1, 3).
__device__ __forceinline__ void sums_of_pair(const uint8_t* stage, const Int4Activations& x,
                                             int first_token, int stage_index, int pair,
                                             int32_t (&sum)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint4 a = *reinterpret_cast<const uint4*>(stage + pair * 512 + lane * 16);
  sum[0] = sum[1] = sum[2] = sum[3] = 0;
  mma_u4s4(sum, a, operand(x, first_token, stage_index * 2 + pair));
}

template <int kGroup>
__global__ void __launch_bounds__(kWarps * 32)
    multiply(const uint8_t* weights, MatrixShape shape, Int4Activations x, int rows, __half* y) {
  __shared__ float parts[kWarps][kBlockTokens][16];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int tile = static_cast<int>(blockIdx.x);
  const int first_token = static_cast<int>(blockIdx.y) * kBlockTokens;
  float total[kTokenTiles][2] = {};
  for (int i = shape.stages * warp / kWarps; i < shape.stages * (warp + 1) / kWarps; ++i) {
    const size_t index = static_cast<size_t>(tile) * shape.stages + i;
    const uint8_t* stage = weights + stage_offset(index, kGroup);
    const auto* affine = reinterpret_cast<const __half2*>(stage + 1024);
    for (int t = 0; t < kTokenTiles; ++t) {
      const int token = first_token + t * kTileTokens + lane % 4;
      float2 part[2] = {};  // of the rows: Σ scale·(code·x), Σ scale·x of the group so far
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        int32_t sum[4];
        if (block % 2 == 0) {
          sums_of_pair(stage, x, first_token + t * kTileTokens, i, block / 2, sum);
        }
        const float2 scale =
            token < x.tokens
                ? x.scales[static_cast<size_t>(token) * (x.columns / 32) + i * 4 + block]
                : make_float2(0.0F, 0.0F);
        for (int r = 0; r < 2; ++r) {
          part[r].x = fmaf(scale.x, static_cast<float>(sum[r * 2 + block % 2]), part[r].x);
          part[r].y += scale.y;
          if ((block + 1) * 32 % kGroup != 0) continue;
          const float2 w = __half22float2(affine[block * 32 / kGroup * 16 + lane / 4 + r * 8]);
          total[t][r] = fmaf(w.x, part[r].x, fmaf(w.y, part[r].y, total[t][r]));
          part[r] = make_float2(0.0F, 0.0F);
        }
      }
    }
  }
  for (int t = 0; t < kTokenTiles; ++t) {
    for (int r = 0; r < 2; ++r) {
      parts[warp][t * kTileTokens + lane % 4][lane / 4 + r * 8] = total[t][r];
    }
  }
  __syncthreads();
  const int token = static_cast<int>(threadIdx.x) / 16, row = static_cast<int>(threadIdx.x) % 16;
  if (first_token + token >= x.tokens || tile * 16 + row >= rows) return;
  float sum = 0.0F;
  for (int part = 0; part < kWarps; ++part) sum += parts[part][token][row];
  y[static_cast<size_t>(first_token + token) * rows + tile * 16 + row] = __float2half_rn(sum);
}
static_assert(kBlockTokens * 16 == kWarps * 32, "a thread for each token and row of a tile");

// A warp for each stage of a tile and each tile of tokens.
__global__ void store_sums(const uint8_t* weights, MatrixShape shape, int group, Int4Activations x,
                           int32_t* sums) {
  const int lane = static_cast<int>(threadIdx.x);
  const int tile = static_cast<int>(blockIdx.x), i = static_cast<int>(blockIdx.y);
  const int first_token = static_cast<int>(blockIdx.z) * kTileTokens;
  const uint8_t* stage =
      weights + stage_offset(static_cast<size_t>(tile) * shape.stages + i, group);
  for (int pair = 0; pair < 2; ++pair) {
    int32_t sum[4];
    sums_of_pair(stage, x, first_token, i, pair, sum);
    const int token = first_token + lane % 4;
    if (token >= x.tokens) continue;
    for (int place = 0; place < 4; ++place) {
      const size_t block =
          static_cast<size_t>(token) * (x.columns / 32) + i * 4 + pair * 2 + place % 2;
      sums[block * shape.tiles * 16 + tile * 16 + lane / 4 + place / 2 * 8] = sum[place];
    }
  }
}

// A warp for each 32 columns of a token.
__global__ void round(const float* x, Int4Activations to) {
  const size_t block = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const float value = x[block * 32 + lane];
  float largest = fabsf(value);
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, step));
  }
  const float scale = largest / 7.0F < 1.17549435e-38F ? 0.0F : largest / 7.0F;
  const int code = scale == 0.0F ? 0 : __float2int_rn(fminf(fmaxf(value / scale, -7.0F), 7.0F));
  int sum = code;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0U, sum, step);
  // The order of the weights' nibbles: columns 0, 4, 1, 5, 2, 6, 3, 7.
  uint32_t word = (static_cast<uint32_t>(code) & 15U) << (4 * (lane % 4 * 2 + lane % 8 / 4));
  for (int step = 4; step > 0; step /= 2) word |= __shfl_xor_sync(~0U, word, step);
  if (lane % 8 == 0) to.words[block * 4 + lane / 8] = word;
  if (lane == 0) to.scales[block] = make_float2(scale, scale * static_cast<float>(sum));
}

unsigned tiles_of(int count, int size) { return static_cast<unsigned>((count + size - 1) / size); }

}  // namespace

int round_to_int4(const float* x, const Int4Activations& to, void* stream) {
  round<<<static_cast<unsigned>(to.tokens) * (to.columns / 32), 32, 0,
          static_cast<cudaStream_t>(stream)>>>(x, to);
  return cudaGetLastError();
}

int int4_multiply(const uint8_t* weights, const MatrixShape& shape, int group,
                  const Int4Activations& x, int rows, __half* y, void* stream) {
  const dim3 grid(static_cast<unsigned>(shape.tiles), tiles_of(x.tokens, kBlockTokens));
  const auto kernel = group == 32 ? multiply<32> : multiply<128>;
  kernel<<<grid, kWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(weights, shape, x, rows, y);
  return cudaGetLastError();
}

int int4_sums(const uint8_t* weights, const MatrixShape& shape, int group, const Int4Activations& x,
              int32_t* sums, void* stream) {
  const dim3 grid(static_cast<unsigned>(shape.tiles), static_cast<unsigned>(shape.stages),
                  tiles_of(x.tokens, kTileTokens));
  store_sums<<<grid, 32, 0, static_cast<cudaStream_t>(stream)>>>(weights, shape, group, x, sums);
  return cudaGetLastError();
}

}  // namespace specquant::cuda
