// Probabilities, margins and divergences of logits against their definitions in float64.
#include "decode/distribution.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

namespace specquant::decode {
namespace {

TEST_CASE("probabilities, margin and divergence follow their definitions") {
  const std::vector<float> a{1.0F, 3.0F, 3.0F, -2.0F};
  const std::vector<float> b{0.5F, 1.0F, 2.0F, 0.0F};
  const Distribution p(a);
  const Distribution q(b);
  CHECK(p.top() == 1);
  CHECK(p.margin() == 0.0);
  CHECK(q.margin() == 1.0);
  double sum = 0.0;
  for (const float logit : a) sum += std::exp(static_cast<double>(logit));
  CHECK(p.probability(0) == doctest::Approx(std::exp(1.0) / sum).epsilon(1e-6));
  double divergence = 0.0;
  for (int i = 0; i < 4; ++i) {
    divergence += p.probability(i) * (std::log(p.probability(i)) - std::log(q.probability(i)));
  }
  CHECK(p.divergence(q) == doctest::Approx(divergence).epsilon(1e-6));
  CHECK(p.divergence(p) == 0.0);
}

TEST_CASE("a whole vocabulary's probabilities follow their definitions") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 6.0F);
  std::vector<float> a(4099);  // a few more than whole vectors
  std::vector<float> b(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = normal(random);
    b[i] = a[i] + 0.2F * normal(random);
  }
  a[5] = -1000.0F;  // its exponential is zero in single precision
  const auto log_sum = [](const std::vector<float>& logits) {
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    return std::log(sum);
  };
  const Distribution p(a);
  const Distribution q(b);
  double divergence = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double own = static_cast<double>(a[i]) - log_sum(a);
    divergence += std::exp(own) * (own - (static_cast<double>(b[i]) - log_sum(b)));
  }
  CHECK(p.log_probability(3) ==
        doctest::Approx(static_cast<double>(a[3]) - log_sum(a)).epsilon(1e-7));
  CHECK(p.divergence(q) == doctest::Approx(divergence).epsilon(1e-6));
  CHECK(p.divergence(p) == 0.0);
}

}  // namespace
}  // namespace specquant::decode
