// Kernels against float64, exact integer sums, and equal bits for every number of rows, split of
// the tiles and instruction set.
#include "cpu/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "tests/reference_tiles.h"

namespace specquant::cpu {
namespace {

using reference::Weights;

struct Pair {
  WeightKind weights;
  ActivationKind activations;
  int group;
  const char* name;
};

constexpr Pair kPairs[] = {
    {WeightKind::f16, ActivationKind::f32, 0, "f16 x f32"},
    {WeightKind::bf16, ActivationKind::bf16, 0, "bf16 x bf16"},
    {WeightKind::affine4, ActivationKind::i16, 32, "affine4/32 x i16"},
    {WeightKind::affine4, ActivationKind::i16, 64, "affine4/64 x i16"},
    {WeightKind::affine4, ActivationKind::i16, 128, "affine4/128 x i16"},
    {WeightKind::affine4, ActivationKind::i8, 32, "affine4/32 x i8"},
    {WeightKind::affine4, ActivationKind::i8, 64, "affine4/64 x i8"},
    {WeightKind::affine4, ActivationKind::i8, 128, "affine4/128 x i8"},
    {WeightKind::affine4, ActivationKind::u4, 32, "affine4/32 x u4"},
    {WeightKind::affine4, ActivationKind::u4, 64, "affine4/64 x u4"},
    {WeightKind::affine4, ActivationKind::u4, 128, "affine4/128 x u4"},
    {WeightKind::affine4, ActivationKind::u4g16, 32, "affine4/32 x u4g16"},
    {WeightKind::affine4, ActivationKind::u4g16, 128, "affine4/128 x u4g16"},
    {WeightKind::affine4z, ActivationKind::u4g16, 64, "affine4z/64 x u4g16"},
    {WeightKind::affine8, ActivationKind::u4g16, 64, "affine8/64 x u4g16"},
    {WeightKind::affine4z, ActivationKind::i16, 128, "affine4z/128 x i16"},
    {WeightKind::affine4z, ActivationKind::i8, 32, "affine4z/32 x i8"},
    {WeightKind::affine4z, ActivationKind::u4, 64, "affine4z/64 x u4"},
    {WeightKind::affine8, ActivationKind::i16, 32, "affine8/32 x i16"},
    {WeightKind::affine8, ActivationKind::i8, 32, "affine8/32 x i8"},
    {WeightKind::affine8, ActivationKind::i8, 128, "affine8/128 x i8"},
    {WeightKind::affine8, ActivationKind::u4, 64, "affine8/64 x u4"},
};
constexpr int kRows = 53, kCols = 384;  // four tiles, the last with five rows

const float kPoison = std::numeric_limits<float>::quiet_NaN();

std::mt19937 fresh_random() {
  const unsigned seed = std::random_device{}();
  MESSAGE("seed ", seed);
  return std::mt19937(seed);
}

std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> found;
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    if (const KernelTable* table = kernels(name)) found.push_back(table);
  }
  return found;
}

// Rows whose groups differ in size and mean, as activations do.
std::vector<float> random_rows(int rows, int cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(rows) * cols);
  float mean = 0.0F, size = 1.0F;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % kActivationGroup == 0) {
      size = std::exp(normal(random));
      mean = size * normal(random);
    }
    x[i] = mean + size * normal(random);
  }
  return x;
}

PackedRows packed(const KernelTable& table, ActivationKind kind, const float* x, int rows,
                  int cols) {
  PackedRows out;
  out.prepare(kind, rows, cols);
  table.pack(x, static_cast<std::size_t>(cols), 0, rows, out);
  return out;
}

// [row][output], with poison before and between, and a check that nothing else was written.
std::vector<float> product(const KernelTable& table, const Weights& w, const PackedRows& x,
                           const std::vector<int>& cuts = {}) {
  const std::size_t stride = static_cast<std::size_t>(w.matrix.rows) + 3;
  std::vector<float> y(stride * x.rows, kPoison);
  int begin = 0;
  for (int cut : cuts) {
    table.matmul(w.matrix, x, begin, cut, y.data(), stride, false);
    begin = cut;
  }
  table.matmul(w.matrix, x, begin, w.matrix.tile_count(), y.data(), stride, false);
  std::vector<float> out;
  bool margin_untouched = true;
  for (int row = 0; row < x.rows; ++row) {
    const float* from = y.data() + stride * row;
    out.insert(out.end(), from, from + w.matrix.rows);
    for (int i = 0; i < 3; ++i) margin_untouched &= std::isnan(from[w.matrix.rows + i]);
  }
  CHECK(margin_untouched);
  return out;
}

bool same_bits(const float* a, const float* b, std::size_t count) {
  return count == 0 || std::memcmp(a, b, count * sizeof(float)) == 0;
}

// Relative error (norm) of y against Σ w·x in float64, with x as it was packed.
double relative_error(const std::vector<float>& y, const Weights& w, const PackedRows& x,
                      bool native_bf16) {
  double error = 0.0, size = 0.0;
  std::vector<double> values(static_cast<std::size_t>(x.cols));
  for (int row = 0; row < x.rows; ++row) {
    for (int c = 0; c < x.cols; ++c) values[c] = reference::packed_value(x, row, c, native_bf16);
    for (int output = 0; output < w.matrix.rows; ++output) {
      double sum = 0.0;
      for (int c = 0; c < x.cols; ++c) sum += w.at(output, c) * values[c];
      const double difference = y[static_cast<std::size_t>(row) * w.matrix.rows + output] - sum;
      error += difference * difference;
      size += sum * sum;
    }
  }
  return size == 0.0 ? std::sqrt(error) : std::sqrt(error / size);
}

// Every packed value is as near to x as its kind promises, and sums and scales fit the integers.
void check_rounding(const KernelTable& table, const PackedRows& p, const std::vector<float>& x) {
  bool near = true, sums = true, range = true;
  const int columns = activation_group(p.kind);
  const bool four_bits = p.kind == ActivationKind::u4 || p.kind == ActivationKind::u4g16;
  for (int row = 0; row < p.rows; ++row) {
    for (int first = 0; first < p.cols; first += columns) {
      const float* group = x.data() + static_cast<std::size_t>(row) * p.cols + first;
      double most = 0.0, low = 0.0, high = 0.0;
      for (int i = 0; i < columns; ++i) {
        most = std::max(most, std::fabs(static_cast<double>(group[i])));
        low = std::min(low, static_cast<double>(group[i]));
        high = std::max(high, static_cast<double>(group[i]));
      }
      double step = 0.0, error = 0.0;  // of the integers, and the largest permitted
      if (p.kind == ActivationKind::i8) step = most / 127, error = 0.5 * step;
      if (p.kind == ActivationKind::i16) step = most / 32639, error = 0.5 * step;
      // Half a level for the code, and where zero was moved by half an eighth, that at the ends.
      if (four_bits) step = (high - low) / 15 / 8, error = 4.5 * step;
      const bool vanishes = reference::is_quantized(p.kind) && step < 0x1p-126;
      int total = 0;
      for (int i = 0; i < columns; ++i) {
        const double value = reference::packed_value(p, row, first + i, table.native_bf16);
        double permitted = error + 1e-6 * most;
        if (p.kind == ActivationKind::f32) permitted = 0.0;
        if (p.kind == ActivationKind::bf16) permitted = std::fabs(group[i]) * 0x1p-8 + 0x1p-134;
        if (vanishes) permitted = most;
        near &= std::fabs(value - group[i]) <= permitted;
        if (reference::is_quantized(p.kind)) total += reference::packed_integer(p, row, first + i);
      }
      if (!reference::is_quantized(p.kind)) continue;
      const std::size_t at = p.index(row, first / columns);
      range &= vanishes ? p.scale[at] == 0.0F : std::fabs(p.scale[at] / step - 1.0) < 1e-6;
      sums &= total == p.integer_sum[at];
      sums &= p.scaled_sum[at] == p.scale[at] * static_cast<float>(total);
    }
  }
  CHECK(near);
  CHECK(range);
  CHECK(sums);
}

TEST_CASE("products agree with float64") {
  std::mt19937 random = fresh_random();
  for (const KernelTable* table : tables()) {
    for (const Pair& pair : kPairs) {
      CAPTURE(std::string(table->name));
      CAPTURE(std::string(pair.name));
      const Weights w = reference::random_weights(pair.weights, kRows, kCols, pair.group, random);
      for (int rows : {1, 7, 30}) {
        const std::vector<float> x = random_rows(rows, kCols, random);
        const PackedRows p = packed(*table, pair.activations, x.data(), rows, kCols);
        check_rounding(*table, p, x);
        CHECK(relative_error(product(*table, w, p), w, p, table->native_bf16) < 1e-5);
      }
    }
  }
}

TEST_CASE("integer sums are exact") {
  std::mt19937 random = fresh_random();
  for (const KernelTable* table : tables()) {
    for (const Pair& pair : kPairs) {
      if (!reference::is_quantized(pair.activations)) continue;
      CAPTURE(std::string(table->name));
      CAPTURE(std::string(pair.name));
      const Weights w = reference::random_weights(pair.weights, kRows, kCols, pair.group, random);
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
                expected +=
                    int64_t{w.code(tile * kTileRows + r, c)} * reference::packed_integer(p, row, c);
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
      if (!reference::is_quantized(pair.activations)) continue;
      CAPTURE(std::string(table->name));
      CAPTURE(std::string(pair.name));
      std::mt19937 random(1);
      Weights w = reference::random_weights(pair.weights, kTileRows, kCols, pair.group, random);
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
          const int integer = reference::packed_integer(p, 0, 0);
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

TEST_CASE("a row has the same bits alone and among any number, with any split of the tiles") {
  std::mt19937 random = fresh_random();
  constexpr int most = 200;
  std::vector<int> counts;
  for (int n = 2; n <= 65; ++n) counts.push_back(n);
  counts.insert(counts.end(), {128, most});
  for (const Pair& pair : kPairs) {
    CAPTURE(std::string(pair.name));
    const Weights w = reference::random_weights(pair.weights, kRows, kCols, pair.group, random);
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

TEST_CASE("accumulate adds to what is there") {
  std::mt19937 random = fresh_random();
  for (const KernelTable* table : tables()) {
    for (const Pair& pair : kPairs) {
      CAPTURE(std::string(table->name));
      CAPTURE(std::string(pair.name));
      const Weights w = reference::random_weights(pair.weights, kRows, kCols, pair.group, random);
      const std::vector<float> x = random_rows(5, kCols, random);
      const PackedRows p = packed(*table, pair.activations, x.data(), 5, kCols);
      const std::vector<float> stored = product(*table, w, p);
      std::vector<float> y = random_rows(5, kRows, random);
      const std::vector<float> before = y;
      table->matmul(w.matrix, p, 0, w.matrix.tile_count(), y.data(), kRows, true);
      bool equal = true;
      for (std::size_t i = 0; i < y.size(); ++i) equal &= y[i] == before[i] + stored[i];
      CHECK(equal);
    }
  }
}

TEST_CASE("extreme activations") {
  std::mt19937 random = fresh_random();
  std::vector<std::vector<float>> rows;
  for (float size : {0.0F, 1e30F, 1e-30F, 1e-36F, 1e-40F, 1e4F}) {
    rows.push_back(random_rows(1, kCols, random));
    for (float& value : rows.back()) value *= size;
  }
  rows.push_back(random_rows(1, kCols, random));  // one group of zeros
  std::fill_n(rows.back().begin() + 64, kActivationGroup, 0.0F);
  rows.push_back(random_rows(1, kCols, random));  // one outlier
  rows.back()[77] = 5e4F;
  rows.push_back(std::vector<float>(kCols, 0.0F));  // one value alone
  rows.back()[kCols - 1] = -0.7F;
  rows.push_back(std::vector<float>(kCols, 2.5F));  // all equal
  for (const Pair& pair : kPairs) {
    const Weights w = reference::random_weights(pair.weights, kRows, kCols, pair.group, random);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::vector<float> first_table;
      for (const KernelTable* table : tables()) {
        CAPTURE(std::string(table->name));
        CAPTURE(std::string(pair.name));
        CAPTURE(i);
        const PackedRows p = packed(*table, pair.activations, rows[i].data(), 1, kCols);
        const bool denormal = *std::max_element(rows[i].begin(), rows[i].end()) < 1e-34F;
        // vdpbf16ps takes denormal numbers for zero.
        const bool flushes = table->native_bf16 && pair.activations == ActivationKind::bf16;
        check_rounding(*table, p, rows[i]);
        const std::vector<float> y = product(*table, w, p);
        // Below 1e-38 there are no 24 bits to be right in.
        if (!denormal) CHECK(relative_error(y, w, p, table->native_bf16) < 1e-5);
        if (flushes) continue;
        if (first_table.empty()) first_table = y;
        CHECK(same_bits(y.data(), first_table.data(), y.size()));
      }
    }
  }
}

TEST_CASE("NaN and infinity are not lost") {
  std::mt19937 random = fresh_random();
  for (const Pair& pair : kPairs) {
    const Weights w = reference::random_weights(pair.weights, kRows, kCols, pair.group, random);
    for (float bad : {kPoison, -kPoison, std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity()}) {
      for (const KernelTable* table : tables()) {
        CAPTURE(std::string(table->name));
        CAPTURE(std::string(pair.name));
        CAPTURE(bad);
        std::vector<float> x = random_rows(3, kCols, random);
        x[kCols + random() % kCols] = bad;
        const PackedRows p = packed(*table, pair.activations, x.data(), 3, kCols);
        const std::vector<float> y = product(*table, w, p);
        bool lost = false, spread = false;
        for (int output = 0; output < kRows; ++output) {
          lost |= std::isfinite(y[kRows + output]);
          spread |= !std::isfinite(y[output]) || !std::isfinite(y[2 * kRows + output]);
        }
        CHECK_FALSE(lost);
        CHECK_FALSE(spread);
      }
    }
  }
}

TEST_CASE("every finite f16 weight is converted exactly") {
  std::vector<uint16_t> finite;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7C00U) != 0x7C00U) finite.push_back(static_cast<uint16_t>(bits));
  }
  constexpr int cols = 32;
  const int rows = static_cast<int>(finite.size()) / cols;
  REQUIRE(rows % kTileRows == 0);
  Matrix matrix{WeightKind::f16, rows, cols, 0, nullptr};
  matrix.tiles = reinterpret_cast<const std::byte*>(finite.data());
  std::vector<float> identity(cols * cols, 0.0F);
  for (int i = 0; i < cols; ++i) identity[i * cols + i] = 1.0F;
  for (const KernelTable* table : tables()) {
    CAPTURE(std::string(table->name));
    const PackedRows p = packed(*table, ActivationKind::f32, identity.data(), cols, cols);
    std::vector<float> y(static_cast<std::size_t>(rows) * cols, kPoison);
    table->matmul(matrix, p, 0, matrix.tile_count(), y.data(), rows, false);
    bool equal = true;
    for (std::size_t i = 0; i < finite.size(); ++i) {
      const std::size_t tile = i / (cols * kTileRows), column = i / kTileRows % cols;
      const int exponent = finite[i] >> 10 & 31, mantissa = finite[i] & 1023;
      double value =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      if (finite[i] >> 15) value = -value;
      equal &= y[column * rows + tile * kTileRows + i % kTileRows] == value;
      equal &= f16_from_float(static_cast<float>(value)) == finite[i];
    }
    CHECK(equal);
  }
}

TEST_CASE("bad arguments are refused") {
  std::mt19937 random(1);
  const Weights w = reference::random_weights(WeightKind::affine4, kRows, kCols, 32, random);
  std::vector<float> y(kRows);
  for (const KernelTable* table : tables()) {
    PackedRows x;
    CHECK_THROWS_AS(x.prepare(ActivationKind::i8, 1, 33), std::invalid_argument);
    CHECK_THROWS_AS(x.prepare(ActivationKind::i8, 0, 32), std::invalid_argument);
    const auto multiply = [&](const Matrix& m, int begin, int end) {
      table->matmul(m, x, begin, end, y.data(), kRows, false);
    };
    x.prepare(ActivationKind::f32, 1, kCols);
    CHECK_THROWS_AS(multiply(w.matrix, 0, 4), std::invalid_argument);  // no such pair
    x.prepare(ActivationKind::i8, 1, 352);
    CHECK_THROWS_AS(multiply(w.matrix, 0, 4), std::invalid_argument);  // other columns
    x.prepare(ActivationKind::i8, 1, kCols);
    CHECK_THROWS_AS(multiply(w.matrix, 0, 5), std::invalid_argument);
    CHECK_THROWS_AS(multiply(w.matrix, -1, 4), std::invalid_argument);
    Matrix odd = w.matrix;
    odd.group = 48;
    CHECK_THROWS_AS(multiply(odd, 0, 4), std::invalid_argument);
  }
  CHECK(kernels("sse9") == nullptr);
}

// CMake runs this with SPECQUANT_ISA set to each name, and to one that does not exist.
TEST_CASE("SPECQUANT_ISA chooses the table") {
  const char* wanted = std::getenv("SPECQUANT_ISA");
  if (wanted != nullptr && kernels(wanted) == nullptr) {
    CHECK_THROWS_AS(kernels(), std::runtime_error);
    return;
  }
  const std::string expected = wanted != nullptr ? wanted : tables().back()->name;
  CHECK(kernels().name == expected);
}

}  // namespace
}  // namespace specquant::cpu
