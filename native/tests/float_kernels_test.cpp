// Kernels in floating point against their definitions: the same bits on all processors.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "core/hadamard.h"
#include "cpu/elementwise.h"
#include "cpu/half.h"
#include "tests/float_tables.h"

namespace specquant::cpu {
namespace {

using reference::float_tables;

TEST_CASE("float kernels agree with float64 and with each other bit by bit") {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> x(320);
  for (float& value : x) value = normal(random);
  x[5] = 200.0F;
  x[6] = -200.0F;  // beyond the range of the exponential
  std::vector<float> weight(320, 0.75F);

  std::vector<std::vector<float>> all;
  for (const auto& [isa, table] : float_tables()) {
    CAPTURE(isa);
    std::vector<float> out(320), silu(160), turned(16);
    table->rms_norm(x.data(), weight.data(), 1e-5F, 320, out.data());
    table->silu_product(x.data(), 10, silu.data());
    table->rotate(x.data(), weight.data(), x.data() + 16, turned.data());
    const LogSumPart part = table->log_sum_part(x.data() + 16, 301);

    double squares = 0.0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    const double scale = 0.75 / std::sqrt(squares / 320 + 1e-5);
    for (int i = 0; i < 320; ++i) CHECK(out[i] == doctest::Approx(x[i] * scale).epsilon(1e-6));
    for (int i = 0; i < 160; ++i) {
      const double gate = x[i / 16 * 32 + i % 16];
      const double want = gate / (1.0 + std::exp(-gate)) * x[i / 16 * 32 + 16 + i % 16];
      CHECK(std::fabs(silu[i] - want) <= 1e-6 * std::fabs(want) + 1e-30);
    }
    for (int pair = 0; pair < 8; ++pair) {
      const double a = x[2 * pair], b = x[2 * pair + 1], sine = x[16 + pair];
      CHECK(turned[2 * pair] == doctest::Approx(a * 0.75 - b * sine).epsilon(1e-5));
      CHECK(turned[2 * pair + 1] == doctest::Approx(a * sine + b * 0.75).epsilon(1e-5));
    }
    double total = 0.0;
    for (int i = 16; i < 317; ++i) total += std::exp(static_cast<double>(x[i]) - part.largest);
    CHECK(part.sum == doctest::Approx(total).epsilon(1e-6));

    std::vector<float> joined = out;
    joined.insert(joined.end(), silu.begin(), silu.end());
    joined.insert(joined.end(), turned.begin(), turned.end());
    joined.push_back(part.sum);
    all.push_back(joined);
    CHECK(std::memcmp(joined.data(), all[0].data(), joined.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("attention of two rows at once is that of each alone, bitwise on all processors") {
  constexpr int kContext = 96, kDim = 48;  // 16 dimensions behind a stretch of 32
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto halves = [&] {
    std::vector<uint16_t> values(kContext * kDim);
    for (uint16_t& value : values) value = f16_from_float(normal(random));
    return values;
  };
  const std::vector<uint16_t> keys = halves(), values = halves();
  const std::pair<AttentionRow, AttentionRow> cases[] = {
      {{.prefix = 16}, {.prefix = 17}},  // a chain, into another block of keys
      {{.prefix = 41}, {.prefix = 40}},
      {{.prefix = 1}, {.prefix = 90}},
      {{.prefix = 30, .base = 30, .ancestors = 0b1},
       {.prefix = 30, .base = 30, .ancestors = 0b101}},
      {{.prefix = 20, .base = 20, .ancestors = 0b1011}, {.prefix = 25}},
      {{.prefix = 0, .base = 0, .ancestors = 0b1}, {.prefix = 33}},
  };
  for (const int heads : {1, 2, 3, 4, 7}) {
    std::vector<float> query(2 * heads * kDim);
    for (float& value : query) value = normal(random);
    for (const auto& [first, second] : cases) {
      std::vector<float> expected;
      for (const auto& [isa, table] : float_tables()) {
        CAPTURE(isa);
        CAPTURE(heads);
        const auto attend = [&](std::vector<AttentionRow> rows, int from) {
          std::vector<float> scores(kRowsAtOnce * 4 * kContext);
          std::vector<float> out(rows.size() * heads * kDim, 99.0F);
          AttentionTask task;
          task.rows = static_cast<int>(rows.size());
          task.keys = keys.data();
          task.values = values.data();
          task.heads = heads;
          task.head_dim = kDim;
          task.scale = 0.25F;
          task.scores = scores.data();
          task.score_stride = kContext;
          for (std::size_t r = 0; r < rows.size(); ++r) {
            task.row[r] = rows[r];
            task.row[r].query = query.data() + (from + r) * heads * kDim;
            task.row[r].out = out.data() + r * heads * kDim;
          }
          table->attend(task);
          return out;
        };
        const std::vector<float> both = attend({first, second}, 0);
        std::vector<float> apart = attend({first}, 0);
        const std::vector<float> other = attend({second}, 1);
        apart.insert(apart.end(), other.begin(), other.end());
        if (expected.empty()) expected = both;
        CHECK(both == apart);
        CHECK(both == expected);
      }
    }
  }
}

TEST_CASE("a Hadamard transform is the product with its dense matrix, bitwise on all processors") {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const int width : {1, 16, 64, 48, 576, 896, 1536, 4864}) {
    CAPTURE(width);
    const core::Hadamard h = core::hadamard_of(width).value();
    std::vector<float> x(static_cast<std::size_t>(width));
    for (float& value : x) value = normal(random);
    std::vector<float> first;
    for (const auto& [isa, table] : float_tables()) {
      std::vector<float> scratch(x.size()), y(x.size());
      table->hadamard({h.signs.data(), h.order, h.power, x.data(), scratch.data(), y.data()});
      if (first.empty()) first = y;
      CHECK(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)) == 0);
    }
    for (int i = 0; i < width; i += 1 + width / 200) {
      double want = 0.0;
      for (int j = 0; j < width; ++j) {
        const int ones = std::popcount(static_cast<unsigned>((i % h.power) & (j % h.power)));
        const double sign = h.signs[i / h.power * h.order + j / h.power];
        want += (ones % 2 == 0 ? sign : -sign) * x[j] / std::sqrt(width);
      }
      CHECK(std::fabs(first[i] - want) < 2e-6);
    }
  }
}

}  // namespace
}  // namespace specquant::cpu
