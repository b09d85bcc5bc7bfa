// The parts of the CPU model: thread pool, logit results, float kernels.
#include <doctest/doctest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "core/hadamard.h"
#include "core/rotary.h"
#include "cpu/bandwidth.h"
#include "cpu/elementwise.h"
#include "cpu/half.h"
#include "cpu/kernels.h"
#include "cpu/model_results.h"
#include "cpu/model_tiles.h"
#include "cpu/threads.h"
#include "tests/reference_tiles.h"

namespace specquant::cpu {
namespace {

TEST_CASE("a team shares every piece once, and a barrier shows all writes") {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (const int total : {0, 1, 5, 36, 61, 192}) {
      for (const int grain : {1, 2, 16}) {
        std::vector<int> times(static_cast<std::size_t>(total), 0);
        std::vector<long> sums(static_cast<std::size_t>(threads), 0);
        pool.run([&](ThreadPool::Member& member) {
          for (int round = 1; round <= 3; ++round) {
            member.share(total, grain, [&](int begin, int end) {
              CHECK(begin % grain == 0);
              for (int i = begin; i < end; ++i) ++times[i];
            });
            member.barrier();
            for (const int count : times) sums[member.index()] += count;
            member.barrier();
          }
        });
        for (const int count : times) CHECK(count == 3);
        for (const long sum : sums) CHECK(sum == 6L * total);
      }
    }
  }
}

TEST_CASE("a thread that waits is not idle, and its own range is what it is given first") {
  ThreadPool pool(3);
  std::atomic<int> idled{0};
  std::vector<std::pair<int, int>> ranges(3);
  pool.run([&](ThreadPool::Member& member) {
    ranges[member.index()] = member.own_range(61, 4);
    // The first two wait until one of them has been idle.
    while (member.index() == 2 && idled == 0) {
    }
    member.barrier([&] { ++idled; });
  });
  CHECK(idled > 0);
  int next = 0;  // the ranges lie beside each other, in whole pieces
  for (const auto& [begin, end] : ranges) {
    CHECK(begin == next);
    CHECK(begin % 4 == 0);
    next = end;
  }
  CHECK(next == 61);
}

TEST_CASE("bandwidth is a rate that a machine can have") {
  ThreadPool pool(2);
  const double rate = measure_read_bandwidth(pool);
  CHECK(rate > 1e8);
  CHECK(rate < 1e14);
}

std::vector<std::pair<const char*, const FloatKernels*>> tables() {
  std::vector<std::pair<const char*, const FloatKernels*>> found;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    if (kernels(isa) != nullptr) found.emplace_back(isa, &float_kernels(isa));
  }
  return found;
}

TEST_CASE("ties in the best tokens go to the lower id, whoever took which stretch") {
  const int vocabulary = 4 * kVocabularyStretch + 70;
  std::vector<float> logits(static_cast<std::size_t>(vocabulary));
  std::mt19937 random(1);
  for (float& logit : logits) logit = static_cast<float>(random() % 40);
  for (const auto& [isa, table] : tables()) {
    CAPTURE(isa);
    // Who takes the stretches: two mixtures, then one thread alone, from the last to the first.
    for (const int owner : {0, 1, 2}) {
      LogitResults results(*table, vocabulary, {}, 2);
      results.start(1, {LogitRows::all, 50, true, true});
      for (int i = 0; i <= 4; ++i) {
        const int stretch = owner == 2 ? 4 - i : i;
        const int first = stretch * kVocabularyStretch;
        results.take(owner == 2 ? 0 : (stretch + owner) % 2, 0, stretch, logits.data() + first,
                     std::min(kVocabularyStretch, vocabulary - first));
      }
      results.finish();
      for (int i = 0; i < 50; ++i) {
        const TopEntry entry = results.top(0)[i];
        int better = 0;
        for (int token = 0; token < vocabulary; ++token) {
          better +=
              logits[token] > entry.logit || (logits[token] == entry.logit && token < entry.token);
        }
        CHECK(better == i);
      }
      CHECK(std::equal(logits.begin(), logits.end(), results.logits(0).begin()));
    }
  }
}

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

TEST_CASE("best tokens have valid ids even where the logits are not numbers") {
  std::vector<float> logits(200, std::numeric_limits<float>::quiet_NaN());
  logits[150] = 1.0F;
  for (const auto& [isa, table] : tables()) {
    LogitResults results(*table, 200, {}, 2);
    results.start(1, {LogitRows::all, 3, false, false});
    results.take(1, 0, 0, logits.data(), 100);
    results.finish();
    for (const TopEntry& entry : results.top(0)) CHECK((entry.token >= 0 && entry.token < 200));
  }
}

TEST_CASE("Llama 3.1's rotary frequencies are those that transformers computes") {
  // ROPE_INIT_FUNCTIONS["llama3"] of transformers 5.17 for heads of 128, theta 500000.
  const core::RopeScaling scaling{core::RopeScaling::Kind::llama3, 8.0, 1.0, 4.0, 8192};
  const auto found = core::rotary_frequencies(128, 500000.0, scaling);
  const std::pair<int, double> want[] = {{0, 1.0},
                                         {1, 0.8146172165870667},
                                         {20, 0.016560440883040428},
                                         {28, 0.0032114461064338684},
                                         {29, 0.0021665706299245358},
                                         {31, 0.0008567514596506953},
                                         {33, 0.0003126936499029398},
                                         {36, 7.784655463183299e-05},
                                         {63, 3.068925877869333e-07}};
  REQUIRE(found.size() == 64);
  for (const auto& [pair, value] : want) {
    CHECK(found[pair] == doctest::Approx(value).epsilon(2e-6));  // it computes in f32
  }
}

TEST_CASE("Paley's matrices are Hadamard matrices, in the rows that the Python side has") {
  for (const int width : {12, 48, 80, 112, 144, 176, 240, 304, 592}) {
    const core::Hadamard h = core::hadamard_of(width).value();
    REQUIRE((h.order * h.power == width && h.order % 4 == 0));
    for (int i = 0; i < h.order; ++i) {
      for (int j = 0; j < h.order; ++j) {
        int product = 0;
        for (int k = 0; k < h.order; ++k) {
          product += h.signs[i * h.order + k] * h.signs[j * h.order + k];
        }
        CHECK(product == (i == j ? h.order : 0));
      }
    }
  }
  const auto row = [](int width, int index) {
    const core::Hadamard h = core::hadamard_of(width).value();
    std::string text;
    for (int j = 0; j < h.order; ++j) text += h.signs[index * h.order + j] > 0 ? '+' : '-';
    return text;
  };
  CHECK(row(12, 1) == "-+-+---+++-+");
  CHECK(row(12, 11) == "--+---+++-++");
  CHECK(row(28, 1) == "--+-+-+-+-+-+-+-+-+-+-+-+-+-");
  CHECK(row(28, 27) == "+-+--++-+--+-+-+-++-+--++---");
  // 9 has no Hadamard matrix, 184 = 8·23 needs order 92, which Paley's fields do not give.
  for (const int width : {0, -4, 3, 9, 18, 184}) CHECK_FALSE(core::hadamard_of(width).has_value());
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
    for (const auto& [isa, table] : tables()) {
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
      for (const auto& [isa, table] : tables()) {
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

TEST_CASE("float kernels agree with float64 and with each other bit by bit") {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> x(320);
  for (float& value : x) value = normal(random);
  x[5] = 200.0F;
  x[6] = -200.0F;  // beyond the range of the exponential
  std::vector<float> weight(320, 0.75F);

  std::vector<std::vector<float>> all;
  for (const auto& [isa, table] : tables()) {
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

}  // namespace
}  // namespace specquant::cpu
