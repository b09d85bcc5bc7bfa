#include "decode/distribution.h"

#include <cmath>
#include <limits>

namespace specquant::decode {

Distribution::Distribution(std::span<const float> logits) : logits_(logits) {
  float best = -std::numeric_limits<float>::infinity();
  float second = best;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      second = best;
      best = logits[i];
      top_ = static_cast<int32_t>(i);
    } else if (logits[i] > second) {
      second = logits[i];
    }
  }
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  log_sum_ = static_cast<double>(best) + std::log(sum);
  second_ = logits.size() > 1 ? second : best;
}

double Distribution::log_probability(int32_t token) const {
  return static_cast<double>(logits_[static_cast<std::size_t>(token)]) - log_sum_;
}

double Distribution::probability(int32_t token) const { return std::exp(log_probability(token)); }

double Distribution::margin() const {
  return static_cast<double>(logits_[static_cast<std::size_t>(top_)]) - second_;
}

double Distribution::divergence(const Distribution& other) const {
  double sum = 0.0;
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    const double own = log_probability(token);
    const double probability = std::exp(own);
    if (probability > 0.0) sum += probability * (own - other.log_probability(token));
  }
  // Rounding may take the divergence of equal distributions below zero.
  return sum > 0.0 ? sum : 0.0;
}

}  // namespace specquant::decode
