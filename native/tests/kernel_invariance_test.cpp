// Equal bits of products and packed rows for every number of rows, split and instruction set.
#include "cpu/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "tests/kernel_cases.h"

namespace specquant::cpu {
namespace {

using namespace reference;

TEST_CASE("a row has the same bits alone and among any number, with any split of the tiles") {
  std::mt19937 random = fresh_random();
  constexpr int most = 200;
  std::vector<int> counts;
  for (int n = 2; n <= 65; ++n) counts.push_back(n);
  counts.insert(counts.end(), {128, most});
  for (const Pair& pair : kPairs) {
    CAPTURE(std::string(pair.name));
    const Weights w = random_weights(pair.weights, kRows, kCols, pair.group, random);
    const std::vector<float> x = random_rows(most, kCols, random);
    std::vector<float> first_table;
    for (const KernelTable* table : tables()) {
      CAPTURE(std::string(table->name));
      std::vector<float> alone;
      for (int row = 0; row < most; ++row) {
        const PackedRows p = packed(*table, pair.activations, x.data() + row * kCols, 1, kCols);
        const std::vector<float> y = product(*table, w, p);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int n : counts) {
        CAPTURE(n);
        const int start = static_cast<int>(random() % (most - n + 1));
        const float* rows = x.data() + start * kCols;
        const PackedRows p = packed(*table, pair.activations, rows, n, kCols);
        std::vector<int> cuts{static_cast<int>(random() % 3), 3};
        const std::vector<float> y = product(*table, w, p, cuts);
        CHECK(same_bits(y.data(), alone.data() + start * kRows, y.size()));
      }
      // bf16 has two roundings: vdpbf16ps, and f32 arithmetic where that is missing.
      if (table->native_bf16 && pair.activations == ActivationKind::bf16) continue;
      if (first_table.empty()) first_table = alone;
      CHECK(same_bits(alone.data(), first_table.data(), alone.size()));
    }
  }
}

TEST_CASE("packing is the same on every instruction set and for rows packed apart") {
  std::mt19937 random = fresh_random();
  const std::vector<float> x = random_rows(37, kCols, random);
  for (ActivationKind kind : {ActivationKind::f32, ActivationKind::i16, ActivationKind::i8,
                              ActivationKind::u4, ActivationKind::u4g16}) {
    const PackedRows expected = packed(*kernels("scalar"), kind, x.data(), 37, kCols);
    for (const KernelTable* table : tables()) {
      CAPTURE(std::string(table->name));
      PackedRows p;
      p.prepare(ActivationKind::f32, 64, 2 * kCols);  // a larger use before must not matter
      p.prepare(kind, 37, kCols);
      for (int row = 36; row >= 0; --row) table->pack(x.data(), kCols, row, row + 1, p);
      CHECK(std::memcmp(p.data.data(), expected.data.data(), expected.data.size()) == 0);
      CHECK(same_bits(p.scale.data(), expected.scale.data(), expected.scale.size()));
      CHECK(same_bits(p.scaled_sum.data(), expected.scaled_sum.data(), expected.scale.size()));
      CHECK(std::equal(expected.integer_sum.begin(), expected.integer_sum.end(),
                       p.integer_sum.begin()));
    }
  }
}

TEST_CASE("columns of a row that are packed apart, in any order, are those of the whole row") {
  std::mt19937 random = fresh_random();
  for (const int rows : {1, 3, 37}) {
    const std::vector<float> x = random_rows(rows, kCols, random);
    for (ActivationKind kind : {ActivationKind::f32, ActivationKind::bf16, ActivationKind::i16,
                                ActivationKind::i8, ActivationKind::u4, ActivationKind::u4g16}) {
      for (const KernelTable* table : tables()) {
        CAPTURE(rows);
        CAPTURE(std::string(table->name));
        CAPTURE(std::string(name_of(kind)));
        const PackedRows whole = packed(*table, kind, x.data(), rows, kCols);
        PackedRows parts;
        parts.prepare(kind, rows, kCols);
        constexpr int kCut = kCols / 64 * 32;
        for (int row = rows - 1; row >= 0; --row) {
          const float* values = x.data() + static_cast<std::size_t>(row) * kCols;
          table->pack_columns(values + kCut, row, kCut, kCols - kCut, parts);
          for (int column = 0; column < kCut; column += 32) {
            table->pack_columns(values + column, row, column, 32, parts);
          }
        }
        CHECK(parts.data == whole.data);
        CHECK(same_bits(parts.scale.data(), whole.scale.data(), whole.scale.size()));
        CHECK(same_bits(parts.scaled_sum.data(), whole.scaled_sum.data(), whole.scale.size()));
        CHECK(parts.integer_sum == whole.integer_sum);
      }
    }
  }
}

}  // namespace
}  // namespace specquant::cpu
