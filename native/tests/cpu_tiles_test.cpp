// Rows of matrices in tiles.
#include "cpu/model_tiles.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "tests/reference_tiles.h"

namespace specquant::cpu {
namespace {

TEST_CASE("rows that are taken from a matrix keep their values in every kind") {
  std::mt19937 random(3);
  for (const WeightKind kind : {WeightKind::affine4, WeightKind::affine4z, WeightKind::affine8,
                                WeightKind::f16, WeightKind::bf16}) {
    const reference::Weights all =
        reference::random_weights(kind, 70, 128, is_affine(kind) ? 64 : 0, random);
    const std::vector<int32_t> rows{0,  1,  17, 18, 19, 20, 33, 40, 41,
                                    42, 43, 44, 45, 46, 47, 48, 68, 69};
    Matrix taken = all.matrix;
    taken.rows = static_cast<int>(rows.size());
    std::vector<std::byte> bytes(taken.tile_bytes() * taken.tile_count());
    take_rows(all.matrix, rows, bytes.data());
    taken.tiles = bytes.data();
    for (int i = 0; i < taken.rows; ++i) {
      std::vector<float> found(128), want(128);
      read_row(taken, i, found.data());
      read_row(all.matrix, rows[i], want.data());
      CHECK(found == want);
    }
  }
}

}  // namespace
}  // namespace specquant::cpu
