// The integer sums of the kernels against sums in 64 bits.
#include "cpu/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/kernel_cases.h"

namespace specquant::cpu {
namespace {

using namespace reference;

TEST_CASE("integer sums are exact") {
  std::mt19937 random = fresh_random();
  for (const KernelTable* table : tables()) {
    for (const Pair& pair : kPairs) {
      if (!is_quantized(pair.activations)) continue;
      CAPTURE(std::string(table->name));
      CAPTURE(std::string(pair.name));
      const Weights w = random_weights(pair.weights, kRows, kCols, pair.group, random);
      std::vector<float> x = random_rows(19, kCols, random);
      // The largest sums: every integer at the end of its range.
      for (int c = 0; c < kCols; ++c) x[c] = 3.0F, x[kCols + c] = -3.0F;
      const PackedRows p = packed(*table, pair.activations, x.data(), 19, kCols);
      const int columns = activation_group(pair.activations);
      const int groups = kCols / columns;
      bool exact = true;
      for (int tile = 0; tile < w.matrix.tile_count(); ++tile) {
        for (int row = 0; row < p.rows; ++row) {
          std::vector<int32_t> sums(groups * kTileRows, 0x5A5A5A5A);
          table->integer_accumulators(w.matrix, p, tile, row, sums.data());
          for (int group = 0; group < groups; ++group) {
            for (int r = 0; r < kTileRows && tile * kTileRows + r < kRows; ++r) {
              int64_t expected = 0;
              for (int i = 0; i < columns; ++i) {
                const int c = group * columns + i;
                expected += int64_t{w.code(tile * kTileRows + r, c)} * packed_integer(p, row, c);
              }
              exact &= sums[group * kTileRows + r] == expected;
            }
          }
        }
      }
      CHECK(exact);
    }
  }
}

TEST_CASE("the largest and smallest codes with the largest activations do not overflow") {
  for (const KernelTable* table : tables()) {
    for (const Pair& pair : kPairs) {
      if (!is_quantized(pair.activations)) continue;
      CAPTURE(std::string(table->name));
      CAPTURE(std::string(pair.name));
      std::mt19937 random(1);
      Weights w = random_weights(pair.weights, kTileRows, kCols, pair.group, random);
      const bool four = is_affine4(pair.weights);
      const std::size_t codes = static_cast<std::size_t>(pair.group) * (four ? 8 : 16);
      for (const auto& [byte, code] : {std::pair{std::byte{0xFF}, four ? 15 : 127},
                                       std::pair{std::byte{0}, four ? 0 : -128}}) {
        for (std::size_t start = 0; start < w.bytes.size(); start += codes + (four ? 64 : 32)) {
          std::fill_n(w.bytes.begin() + static_cast<std::ptrdiff_t>(start), codes, byte);
        }
        for (float sign : {1.0F, -1.0F}) {
          const std::vector<float> x(kCols, sign);
          const PackedRows p = packed(*table, pair.activations, x.data(), 1, kCols);
          const int integer = packed_integer(p, 0, 0);
          const int columns = activation_group(pair.activations);
          std::vector<int32_t> sums(kCols / columns * kTileRows);
          table->integer_accumulators(w.matrix, p, 0, 0, sums.data());
          const int32_t expected = code * integer * columns;
          CHECK(
              std::all_of(sums.begin(), sums.end(), [&](int32_t sum) { return sum == expected; }));
        }
      }
    }
  }
}

}  // namespace
}  // namespace specquant::cpu
