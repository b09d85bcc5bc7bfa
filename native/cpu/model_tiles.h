// Reading and converting weights in the tile layout of docs/packed-format.md, outside the hot
// paths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/kernels.h"
#include "cpu/threads.h"

namespace specquant::cpu {

// A row of the embedding, `cols` floats.
void read_row(const Matrix& matrix, int row, float* out);

// Writes the named rows of a matrix as a matrix of the same kind and group. `out` starts as zeros.
void take_rows(const Matrix& from, std::span<const int32_t> rows, std::byte* out);

// Writes a matrix in the tile layout of `kind`, f16 or bf16; each weight is computed in f32 and
// rounded. False where a weight is too large for f16.
bool convert(const Matrix& from, WeightKind kind, uint16_t* out, ThreadPool& pool);

}  // namespace specquant::cpu
