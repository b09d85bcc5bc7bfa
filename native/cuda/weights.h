// Matrices on the device, in the order in which the kernels read them (formats.cuh).
#pragma once

#include <cstdint>
#include <span>

#include "core/packed_file.h"
#include "cuda/memory.h"
#include "cuda/step.h"

namespace specquant::cuda {

// Where a matrix comes from: a tensor of a packed file, or a seed. Weights from a seed are 4-bit
// codes (8-bit ones for affine8) under one scale, of variance 1 / columns; the 16-bit formats get
// the values of the 4-bit codes.
struct MatrixOrigin {
  const core::TensorView* tensor = nullptr;
  uint64_t seed = 0;
  int rows = 0, columns = 0;
  bool gate_up = false;                 // to be interleaved by eight rows
  std::span<const int32_t> taken = {};  // the rows of the tensor to take; empty: all
};

struct DeviceMatrix {
  DeviceBuffer data;
  WeightFormat format = WeightFormat::f16;
  MatrixShape shape;
  int rows = 0;
};

// Columns of a row of activations: whole stages of weights, zeros behind the last.
constexpr int padded_columns(int columns) { return (columns + 127) / 128 * 128; }

int stage_columns(WeightFormat format);
int stage_bytes(WeightFormat format);
const char* name_of(WeightFormat format);

// Throws core::Error: `model` where a weight is too large for f16, `out_of_memory`, `device`.
DeviceMatrix place_matrix(const MatrixOrigin& origin, WeightFormat format, const char* what);

// Rows `a.row[i].token` of an embedding, to [i][hidden] f32, with their sums of squares and the
// first norm's input (`a.squares`, `a.normed`; `norm` are its weights).
int launch_embed(const DeviceMatrix& matrix, int rows, const float* norm, bool bf16,
                 const StepArgs& a, float* residual, void* stream);

}  // namespace specquant::cuda
