// How matrix products are cut into pieces for threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cpu/kernels.h"
#include "cpu/model_results.h"

namespace specquant::cpu {

// Products whose outputs are used up by the thread that computes them come in pieces of at most
// this many, in memory of that thread.
constexpr int kPieceTiles = 16;
constexpr int kPieceOutputs = kPieceTiles * kTileRows;
static_assert(kPieceOutputs == kVocabularyStretch);

// Tiles handed out at a time, in whole steps: two pieces a thread, so that another can take over
// half of what is left to a thread that was interrupted. Every piece more costs some 0.15
// microseconds: taking it waits for all loads of the one before, and for a moment memory has
// nothing to do.
inline int piece_tiles(int tiles, int threads, int step) {
  return std::clamp(tiles / (2 * threads * step), 1, kPieceTiles / step) * step;
}

// A few tiles as a matrix of their own.
inline Matrix piece_of(const Matrix& matrix, int tile_begin, int tile_end) {
  Matrix piece = matrix;
  piece.tiles += static_cast<std::size_t>(tile_begin) * matrix.tile_bytes();
  piece.rows = std::min(matrix.rows, tile_end * kTileRows) - tile_begin * kTileRows;
  piece.tiles_behind = matrix.tile_count() - tile_end;
  return piece;
}

// Where a row of `width` values starts.
inline std::size_t at(int row, int width) { return static_cast<std::size_t>(row) * width; }

}  // namespace specquant::cpu
