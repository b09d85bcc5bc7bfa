#include "cuda/weights.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <type_traits>

#include "cuda/activations.cuh"
#include "decode/precision_errors.h"

namespace specquant::cuda {
namespace {

MatrixShape shape_of(int rows, int columns, WeightFormat format) {
  MatrixShape shape;
  shape.tiles = (rows + kTileRows - 1) / kTileRows;
  shape.columns = columns;
  // Padded to 128 columns whatever the format, so that parts are cut alike.
  const int blocks = (columns + 127) / 128;
  shape.stages = blocks * (128 / stage_columns(format));
  // As many parts as a block has warps, unless they would be of too different widths.
  shape.parts = kMaxParts;
  while (shape.parts > blocks ||
         (blocks + shape.parts - 1) / shape.parts * shape.parts * 7 > blocks * 8) {
    shape.parts /= 2;
  }
  // A tall matrix has tiles enough for a whole GPU.
  shape.slices = rows > 2 * columns ? 1 : std::min(kMostSlices, shape.parts);
  return shape;
}

// Of a 4-bit format, the columns under one scale and offset.
__host__ __device__ constexpr int group_of(WeightFormat format) {
  return format == WeightFormat::affine4_g32 || format == WeightFormat::affine4z_g32 ? 32 : 128;
}
__host__ __device__ constexpr bool has_zero_points(WeightFormat format) {
  return format == WeightFormat::affine4z_g32 || format == WeightFormat::affine4z_g128;
}

enum class Stored { affine4, affine4z, affine8, f16, bf16, seed };

// A matrix as it comes, on the device.
struct Origin {
  const uint8_t* bytes;
  Stored stored;
  int rows, columns, group;
  bool gate_up;
  uint64_t seed;
  const int32_t* taken;  // rows of the file; null: all
};

__device__ uint32_t hash(uint64_t seed, uint32_t row, uint32_t place) {
  uint64_t x = seed * 0x9e3779b97f4a7c15ULL + (static_cast<uint64_t>(row) << 32 | place);
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return static_cast<uint32_t>(x >> 32);
}

// The row of the file that is row `row` of the tiles.
__device__ int file_row(const Origin& o, int row) {
  if (o.taken != nullptr) return o.taken[min(row, o.rows - 1)];
  if (!o.gate_up) return row;
  const int unit = row / 16 * 8 + row % 8;
  return unit / 16 * 32 + unit % 16 + (row % 16 < 8 ? 0 : 16);
}

__device__ const uint8_t* group_start(const Origin& o, int row, int column, int bytes_of_column,
                                      int scale_bytes) {
  const size_t bytes = static_cast<size_t>(o.group) * bytes_of_column + scale_bytes;
  return o.bytes +
         (static_cast<size_t>(row / 16) * (o.columns / o.group) + column / o.group) * bytes;
}

// Nibbles of eight columns of a row, in the file's order; s and m (of affine4z −z).
__device__ uint32_t word4(const Origin& o, int row, int column) {
  if (column >= o.columns) return 0;
  if (o.stored == Stored::seed) return hash(o.seed, row, column / 8);
  const uint8_t* group = group_start(o, row, column, 8, 64);
  return *reinterpret_cast<const uint32_t*>(group + column % o.group / 8 * 64 + row % 16 * 4);
}
__device__ __half2 scale4(const Origin& o, int row, int column) {
  if (column >= o.columns) return __floats2half2_rn(0.0F, 0.0F);
  if (o.stored == Stored::seed) {
    const float s = rsqrtf(static_cast<float>(o.columns) * 21.25F);  // codes 0..15 vary by 21.25
    return __floats2half2_rn(s, -7.5F * s);
  }
  const auto* scales =
      reinterpret_cast<const __half*>(group_start(o, row, column, 8, 64) + o.group * 8);
  return __halves2half2(scales[row % 16], scales[16 + row % 16]);
}

// Codes of four columns of a row as signed bytes; s.
__device__ uint32_t word8(const Origin& o, int row, int column) {
  if (column >= o.columns) return 0;
  if (o.stored == Stored::seed) return hash(o.seed, row, column / 4);
  const uint8_t* group = group_start(o, row, column, 16, 32);
  return *reinterpret_cast<const uint32_t*>(group + column % o.group / 4 * 64 + row % 16 * 4) ^
         0x80808080U;
}
__device__ __half scale8(const Origin& o, int row, int column) {
  if (column >= o.columns) return __float2half(0.0F);
  if (o.stored == Stored::seed) {
    return __float2half_rn(rsqrtf(static_cast<float>(o.columns) * 5461.0F));  // -128..127
  }
  return reinterpret_cast<const __half*>(group_start(o, row, column, 16, 32) +
                                         o.group * 16)[row % 16];
}

__device__ float nibble(uint32_t word, int column) {
  const int place = column % 4 * 2 + column / 4 % 2;
  return static_cast<float>(word >> (4 * place) & 15U);
}
__device__ float signed_byte(uint32_t word, int column) {
  return static_cast<float>(static_cast<int8_t>(word >> (8 * (column % 4)) & 0xffU));
}

__device__ float value(const Origin& o, int row, int column) {
  if (column >= o.columns) return 0.0F;
  switch (o.stored) {
    case Stored::seed:
    case Stored::affine4: {
      const float2 s = __half22float2(scale4(o, row, column));
      return s.x * nibble(word4(o, row, column), column % 8) + s.y;
    }
    case Stored::affine4z: {
      const float2 s = __half22float2(scale4(o, row, column));
      return s.x * (nibble(word4(o, row, column), column % 8) + s.y);
    }
    case Stored::affine8:
      return __half2float(scale8(o, row, column)) * signed_byte(word8(o, row, column), column);
    case Stored::f16: {
      const size_t at = (static_cast<size_t>(row / 16) * o.columns + column) * 16 + row % 16;
      return __half2float(reinterpret_cast<const __half*>(o.bytes)[at]);
    }
    case Stored::bf16: {
      const size_t at = (static_cast<size_t>(row / 16) * o.columns + column / 2 * 2) * 16 +
                        row % 16 * 2 + column % 2;
      return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(o.bytes)[at]);
    }
  }
  return 0.0F;
}

// One block a stage.
__global__ void place_affine4(Origin o, MatrixShape shape, int group, uint8_t* out) {
  const size_t index = blockIdx.x;
  const int tile = static_cast<int>(index / shape.stages);
  const int first = static_cast<int>(index % shape.stages) * 128;
  const int groups = 128 / group;
  auto* words = reinterpret_cast<uint32_t*>(out + index * (1024 + groups * 64));
  for (int i = static_cast<int>(threadIdx.x); i < 256 + groups * 16; i += blockDim.x) {
    if (i < 256) {
      const int lane = i % 128 / 4, row = lane / 4 + i % 2 * 8;
      const int column = first + i / 128 * 64 + i % 4 / 2 * 32 + lane % 4 * 8;
      words[i] = word4(o, file_row(o, tile * 16 + row), column);
    } else {
      const int row = (i - 256) % 16, column = first + (i - 256) / 16 * group;
      reinterpret_cast<__half2*>(words)[i] = scale4(o, file_row(o, tile * 16 + row), column);
    }
  }
}

__global__ void place_affine8(Origin o, MatrixShape shape, uint8_t* out) {
  const size_t index = blockIdx.x;
  const int tile = static_cast<int>(index / shape.stages);
  const int first = static_cast<int>(index % shape.stages) * 128;
  uint8_t* stage = out + index * (2048 + 128);
  for (int i = static_cast<int>(threadIdx.x); i < 512 + 64; i += blockDim.x) {
    if (i < 512) {
      const int lane = i % 128 / 4, row = lane / 4 + i % 2 * 8;
      const int column = first + i / 128 * 32 + lane % 4 * 8 + i % 4 / 2 * 4;
      reinterpret_cast<uint32_t*>(stage)[i] = word8(o, file_row(o, tile * 16 + row), column);
    } else {
      const int row = (i - 512) % 16, column = first + (i - 512) / 16 * 32;
      reinterpret_cast<__half*>(stage + 2048)[i - 512] =
          scale8(o, file_row(o, tile * 16 + row), column);
    }
  }
}

template <class T>
__global__ void place_float(Origin o, MatrixShape shape, T* out, int* too_large) {
  const size_t index = blockIdx.x;
  const int tile = static_cast<int>(index / shape.stages);
  const int first = static_cast<int>(index % shape.stages) * 64;
  for (int i = static_cast<int>(threadIdx.x); i < 1024; i += blockDim.x) {
    const int lane = i % 256 / 8, row = lane / 4 + i / 256 % 2 * 8;
    const int inside = i % 8;  // order [0,2,4,6,1,3,5,7]
    const int column = first + i / 512 * 32 + lane % 4 * 8 + inside % 4 * 2 + inside / 4;
    const float v = value(o, file_row(o, tile * 16 + row), column);
    if constexpr (std::is_same_v<T, __half>) {
      if (!(fabsf(v) < 65520.0F)) *too_large = 1;  // the next half above rounds to infinity
      out[index * 1024 + i] = __float2half_rn(v);
    } else {
      out[index * 1024 + i] = __float2bfloat16_rn(v);
    }
  }
}

Stored stored_kind(core::TensorKind kind) {
  switch (kind) {
    case core::TensorKind::affine4:
      return Stored::affine4;
    case core::TensorKind::affine4z:
      return Stored::affine4z;
    case core::TensorKind::affine8:
      return Stored::affine8;
    case core::TensorKind::bf16:
      return Stored::bf16;
    case core::TensorKind::f16:
    case core::TensorKind::i32:
    case core::TensorKind::f32:  // a vector, never a matrix
      break;
  }
  return Stored::f16;
}

// One block a row of the embedding.
__global__ void embed(const uint8_t* data, WeightFormat format, MatrixShape shape,
                      const StepRow* rows, int wide_rows, const float* norm, bool bf16,
                      float* residual, float* squares, uint16_t* normed) {
  const int row = rows[blockIdx.x].token;
  const int lane_row = row % 16;
  for (int column = static_cast<int>(threadIdx.x); column < shape.columns; column += blockDim.x) {
    const int lane = lane_row % 8 * 4 + column % 32 / 8;
    float v = 0.0F;
    if (format == WeightFormat::f16 || format == WeightFormat::bf16) {
      const size_t stage = static_cast<size_t>(row / 16) * shape.stages + column / 64;
      const int inside = column % 8;
      const size_t at = stage * 1024 + column % 64 / 32 * 512 + lane_row / 8 * 256 + lane * 8 +
                        (inside % 2 * 4 + inside / 2);
      v = format == WeightFormat::f16
              ? __half2float(reinterpret_cast<const __half*>(data)[at])
              : __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(data)[at]);
    } else if (format == WeightFormat::affine8) {
      const uint8_t* stage =
          data + (static_cast<size_t>(row / 16) * shape.stages + column / 128) * (2048 + 128);
      const int block = column % 128 / 32;
      const auto* words = reinterpret_cast<const uint32_t*>(stage + block * 512 + lane * 16);
      v = __half2float(reinterpret_cast<const __half*>(stage + 2048 + block * 32)[lane_row]) *
          signed_byte(words[column % 8 / 4 * 2 + lane_row / 8], column);
    } else {
      const int group = group_of(format);
      const uint8_t* stage = data + (static_cast<size_t>(row / 16) * shape.stages + column / 128) *
                                        (1024 + 128 / group * 64);
      const auto* words =
          reinterpret_cast<const uint32_t*>(stage + column % 128 / 64 * 512 + lane * 16);
      const float2 s = __half22float2(
          reinterpret_cast<const __half2*>(stage + 1024 + column % 128 / group * 64)[lane_row]);
      const float code = nibble(words[column % 64 / 32 * 2 + lane_row / 8], column % 8);
      v = has_zero_points(format) ? s.x * (code + s.y) : s.x * code + s.y;
    }
    residual[static_cast<size_t>(blockIdx.x) * shape.columns + column] = v;
    normed[activation_index(static_cast<int>(blockIdx.x), column, wide_rows)] =
        to_16_bits(v * norm[column], bf16);
    float square = v * v;
    for (int step = 1; step < 16; step *= 2)
      square += __shfl_xor_sync(__activemask(), square, step);
    if (column % 16 == 0) {
      squares[static_cast<size_t>(blockIdx.x) * (shape.columns / 16) + column / 16] = square;
    }
  }
}

}  // namespace

int stage_columns(WeightFormat format) {
  return format == WeightFormat::f16 || format == WeightFormat::bf16 ? 64 : 128;
}

int stage_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::affine4_g32:
    case WeightFormat::affine4_g128:
    case WeightFormat::affine4z_g32:
    case WeightFormat::affine4z_g128:
      return 1024 + 128 / group_of(format) * 64;
    case WeightFormat::affine8:
      return 2048 + 128;
    case WeightFormat::f16:
    case WeightFormat::bf16:
      break;
  }
  return 2048;
}

const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::affine4_g32:
      return "affine4 group 32";
    case WeightFormat::affine4_g128:
      return "affine4 group 128";
    case WeightFormat::affine4z_g32:
      return "affine4z group 32";
    case WeightFormat::affine4z_g128:
      return "affine4z group 128";
    case WeightFormat::affine8:
      return "affine8";
    case WeightFormat::bf16:
      return "bf16";
    case WeightFormat::f16:
      break;
  }
  return "f16";
}

DeviceMatrix place_matrix(const MatrixOrigin& from, WeightFormat format, const char* what) {
  DeviceMatrix matrix;
  matrix.format = format;
  matrix.rows = from.rows;
  matrix.shape = shape_of(from.rows, from.columns, format);
  const size_t stages = static_cast<size_t>(matrix.shape.tiles) * matrix.shape.stages;
  matrix.data = DeviceBuffer(stages * stage_bytes(format), what);

  Origin origin{nullptr, Stored::seed, from.rows, from.columns,
                0,       from.gate_up, from.seed, nullptr};
  DeviceBuffer file, taken;
  if (from.tensor != nullptr) {
    file = DeviceBuffer(from.tensor->bytes.size(), what);
    check(cudaMemcpy(file.as<void>(), from.tensor->bytes.data(), file.bytes(),
                     cudaMemcpyHostToDevice),
          what);
    origin.bytes = file.as<uint8_t>();
    origin.stored = stored_kind(from.tensor->kind);
    origin.group = from.tensor->group;
  }
  if (!from.taken.empty()) {
    taken = DeviceBuffer(from.taken.size_bytes(), what);
    check(cudaMemcpy(taken.as<void>(), from.taken.data(), taken.bytes(), cudaMemcpyHostToDevice),
          what);
    origin.taken = taken.as<int32_t>();
  }
  DeviceBuffer too_large(sizeof(int), what);
  const auto blocks = static_cast<unsigned>(stages);
  auto* out = matrix.data.as<uint8_t>();
  switch (format) {
    case WeightFormat::affine4_g32:
    case WeightFormat::affine4_g128:
    case WeightFormat::affine4z_g32:
    case WeightFormat::affine4z_g128:
      place_affine4<<<blocks, 128>>>(origin, matrix.shape, group_of(format), out);
      break;
    case WeightFormat::affine8:
      place_affine8<<<blocks, 128>>>(origin, matrix.shape, out);
      break;
    case WeightFormat::f16:
      place_float<<<blocks, 256>>>(origin, matrix.shape, matrix.data.as<__half>(),
                                   too_large.as<int>());
      break;
    case WeightFormat::bf16:
      place_float<<<blocks, 256>>>(origin, matrix.shape, matrix.data.as<__nv_bfloat16>(),
                                   too_large.as<int>());
      break;
  }
  check(cudaGetLastError(), what);
  int bad = 0;
  check(cudaMemcpy(&bad, too_large.as<int>(), sizeof bad, cudaMemcpyDeviceToHost), what);
  if (bad != 0) refuse_for_f16(from.tensor->name);
  return matrix;
}

int launch_embed(const DeviceMatrix& matrix, int rows, const float* norm, bool bf16,
                 const StepArgs& a, float* residual, void* stream) {
  embed<<<static_cast<unsigned>(rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(
      matrix.data.as<uint8_t>(), matrix.format, matrix.shape, a.row, a.wide_rows, norm, bf16,
      residual, a.squares, a.normed);
  return cudaGetLastError();
}

}  // namespace specquant::cuda
