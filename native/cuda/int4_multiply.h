// 4-bit weights by 4-bit activations on INT4 tensor cores, which sm_80 and sm_89 have. sm_90 has
// none: nvcc writes a sequence of other instructions there, with the same results.
#pragma once

#include <cstdint>

#include "cuda/step.h"

namespace specquant::cuda {

// Activations as integers -7 ... 7 with a scale for each 32 columns, eight columns a word in the
// order of the weights' nibbles. `columns` is a multiple of 128. All memory is the device's.
struct Int4Activations {
  uint32_t* words;  // [token][columns / 8]
  float2* scales;   // [token][columns / 32]: the scale, and the scale times the sum of the integers
  int tokens, columns;
};

// Rounds x, [token][columns] f32: absmax / 7 of 32 columns is a step. Returns a cudaError_t, like
// the functions below.
int round_to_int4(const float* x, const Int4Activations& to, void* stream);

// y = W·x, [token][rows] f16. `weights` are 4-bit stages (formats.cuh) of `shape` with groups of 32
// or 128. Sums have one order, which depends on the shape alone.
int int4_multiply(const uint8_t* weights, const MatrixShape& shape, int group,
                  const Int4Activations& x, int rows, __half* y, void* stream);

// The integer sums behind `int4_multiply`: Σ code·x over each 32 columns,
// [token][columns / 32][16 · tiles].
int int4_sums(const uint8_t* weights, const MatrixShape& shape, int group, const Int4Activations& x,
              int32_t* sums, void* stream);

}  // namespace specquant::cuda
