// Products of the kernels against float64, for ordinary and for extreme numbers.
#include "cpu/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/kernel_cases.h"

namespace specquant::cpu {
namespace {

using namespace reference;

// Relative error (norm) of y against Σ w·x in float64, with x as it was packed.
double relative_error(const std::vector<float>& y, const Weights& w, const PackedRows& x,
                      bool native_bf16) {
  double error = 0.0, size = 0.0;
  std::vector<double> values(static_cast<std::size_t>(x.cols));
  for (int row = 0; row < x.rows; ++row) {
    for (int c = 0; c < x.cols; ++c) values[c] = packed_value(x, row, c, native_bf16);
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
      const bool vanishes = is_quantized(p.kind) && step < 0x1p-126;
      int total = 0;
      for (int i = 0; i < columns; ++i) {
        const double value = packed_value(p, row, first + i, table.native_bf16);
        double permitted = error + 1e-6 * most;
        if (p.kind == ActivationKind::f32) permitted = 0.0;
        if (p.kind == ActivationKind::bf16) permitted = std::fabs(group[i]) * 0x1p-8 + 0x1p-134;
        if (vanishes) permitted = most;
        near &= std::fabs(value - group[i]) <= permitted;
        if (is_quantized(p.kind)) total += packed_integer(p, row, first + i);
      }
      if (!is_quantized(p.kind)) continue;
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
      const Weights w = random_weights(pair.weights, kRows, kCols, pair.group, random);
      for (int rows : {1, 7, 30}) {
        const std::vector<float> x = random_rows(rows, kCols, random);
        const PackedRows p = packed(*table, pair.activations, x.data(), rows, kCols);
        check_rounding(*table, p, x);
        CHECK(relative_error(product(*table, w, p), w, p, table->native_bf16) < 1e-5);
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
      const Weights w = random_weights(pair.weights, kRows, kCols, pair.group, random);
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
    const Weights w = random_weights(pair.weights, kRows, kCols, pair.group, random);
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
    const Weights w = random_weights(pair.weights, kRows, kCols, pair.group, random);
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
  const Weights w = random_weights(WeightKind::affine4, kRows, kCols, 32, random);
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

}  // namespace
}  // namespace specquant::cpu
