// The distribution that tokens are drawn from: softmax, top_p, reduced vocabularies, residuals.
#include "decode/sampling_distribution.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/random.h"
#include "tests/chi_square.h"
#include "tests/fake_model.h"

namespace specquant::decode {
namespace {

using test::chi_square_excess;
using test::kLuck;

std::vector<double> softmax(std::span<const float> logits, double temperature) {
  std::vector<double> p;
  double sum = 0.0;
  for (const float logit : logits) {
    p.push_back(std::exp(static_cast<double>(logit) / temperature));
    sum += p.back();
  }
  for (double& value : p) value /= sum;
  return p;
}

TEST_CASE("a distribution is the softmax at a temperature") {
  std::vector<float> logits;
  for (int i = 0; i < 1500; ++i) {
    logits.push_back(static_cast<float>(test::mix(5, static_cast<uint64_t>(i)) % 1000) / 100.0F);
  }
  SamplingDistribution distribution;
  for (const double temperature : {0.3, 1.0, 2.5}) {
    distribution.assign(logits, {.temperature = temperature});
    const std::vector<double> expected = softmax(logits, temperature);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      CHECK(distribution.probability(static_cast<int32_t>(i)) ==
            doctest::Approx(expected[i]).epsilon(1e-5));
    }
    std::vector<int64_t> counts(logits.size(), 0);
    for (int i = 0; i < 200000; ++i) {
      ++counts[static_cast<std::size_t>(distribution.draw(uniform(3, {0, i}, Purpose::token)))];
    }
    CHECK(chi_square_excess(counts, expected) < kLuck);
  }
}

TEST_CASE("draws at the ends and of nearly no temperature are tokens with probability") {
  SamplingDistribution distribution;
  std::vector<float> logits(1100, -1e5F);
  logits[3] = 2.0F;
  logits[700] = 2.0F;
  distribution.assign(logits, {.temperature = 1.0});
  CHECK(distribution.draw(0.0) == 3);
  CHECK(distribution.draw(0.49) == 3);
  CHECK(distribution.draw(0.51) == 700);
  CHECK(distribution.draw(std::nextafter(1.0, 0.0)) == 700);
  CHECK(distribution.probability(4) == 0.0);
  logits[3] = 2.01F;
  distribution.assign(logits, {.temperature = 1e-300});
  CHECK(distribution.probability(3) == 1.0);
}

TEST_CASE("top_p keeps the fewest most probable tokens, of equals those of lower ids") {
  const auto log_of = [](double p) { return static_cast<float>(std::log(p)); };
  const std::vector<float> logits{log_of(0.1), log_of(0.4), log_of(0.2), log_of(0.1), log_of(0.2)};
  SamplingDistribution distribution;
  const auto kept = [&](double top_p) {
    distribution.assign(logits, {.temperature = 1.0, .top_p = top_p});
    std::vector<double> p;
    for (int token = 0; token < 5; ++token) {
      p.push_back(std::round(distribution.probability(token) * 1e4) / 1e4);
    }
    return p;
  };
  CHECK(kept(0.01) == std::vector{0.0, 1.0, 0.0, 0.0, 0.0});
  CHECK(kept(0.5) == std::vector{0.0, 0.6667, 0.3333, 0.0, 0.0});
  CHECK(kept(0.75) == std::vector{0.0, 0.5, 0.25, 0.0, 0.25});
  CHECK(kept(0.85) == std::vector{0.1111, 0.4444, 0.2222, 0.0, 0.2222});
  CHECK(kept(1.0) == std::vector{0.1, 0.4, 0.2, 0.1, 0.2});

  // More tokens than are sorted at first.
  std::vector<float> flat(5000, 0.0F);
  distribution.assign(flat, {.temperature = 1.0, .top_p = 0.5});
  CHECK(distribution.probability(2499) == doctest::Approx(1.0 / 2500));
  CHECK(distribution.probability(2500) == 0.0);
}

TEST_CASE("a reduced vocabulary has its probabilities at its tokens and none elsewhere") {
  const std::vector<float> logits{1.0F, 3.0F, 2.0F};
  const std::vector<int32_t> vocabulary{0, 2, 6};
  SamplingDistribution distribution;
  distribution.assign(logits, vocabulary, 8, {.temperature = 1.0});
  const std::vector<double> expected = softmax(logits, 1.0);
  CHECK(distribution.size() == 8);
  CHECK(distribution.probability(0) == doctest::Approx(expected[0]));
  CHECK(distribution.probability(1) == 0.0);
  CHECK(distribution.probability(2) == doctest::Approx(expected[1]));
  CHECK(distribution.probability(6) == doctest::Approx(expected[2]));
  CHECK(distribution.draw(0.9999) == 6);
}

TEST_CASE("the residual is what the target has more of, normalised") {
  const auto logits = [](std::initializer_list<double> p) {
    std::vector<float> row;
    for (const double value : p) row.push_back(static_cast<float>(std::log(value)));
    return row;
  };
  SamplingDistribution p;
  SamplingDistribution q;
  p.assign(logits({0.5, 0.3, 0.2}), {});
  q.assign(logits({0.2, 0.7, 0.1}), {});
  p.subtract(q);
  CHECK(p.probability(0) == doctest::Approx(0.75));
  CHECK(p.probability(1) == 0.0);
  CHECK(p.probability(2) == doctest::Approx(0.25));
}

}  // namespace
}  // namespace specquant::decode
