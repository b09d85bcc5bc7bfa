#include "decode/distribution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "decode/exponential.h"

namespace specquant::decode {
namespace {

// Exponentials of a stretch, then sums over independent lanes, in an order that does not depend on
// the instruction set.
constexpr std::size_t kStretch = 512, kLanes = 16;
using Lanes = std::array<double, kLanes>;

// Calls use(begin, e, count) for each stretch, e[i] = e^(logits[begin + i] - best).
template <class Use>
void for_exponentials(std::span<const float> logits, float best, const Use& use) {
  std::array<float, kStretch> e;
  for (std::size_t begin = 0; begin < logits.size(); begin += kStretch) {
    const std::size_t count = std::min(kStretch, logits.size() - begin);
    const float* from = logits.data() + begin;
    for (std::size_t i = 0; i < count; ++i) e[i] = exponential(from[i] - best);
    use(begin, e, count);
  }
}

double total(const Lanes& lanes) {
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Sum of e^(logit - best).
double sum_of_exponentials(std::span<const float> logits, float best) {
  Lanes sums{};
  for_exponentials(logits, best, [&](std::size_t, const auto& e, std::size_t count) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        sums[lane] += static_cast<double>(e[i + lane]);
      }
    }
    for (; i < count; ++i) sums[0] += static_cast<double>(e[i]);
  });
  return total(sums);
}

// Sum of e^(own - best) * (own - other).
double weighted_difference(std::span<const float> own, std::span<const float> other, float best) {
  Lanes sums{};
  for_exponentials(own, best, [&](std::size_t begin, const auto& e, std::size_t count) {
    const float* mine = own.data() + begin;
    const float* theirs = other.data() + begin;
    const auto term = [&](std::size_t i) {
      return static_cast<double>(e[i]) *
             (static_cast<double>(mine[i]) - static_cast<double>(theirs[i]));
    };
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
    }
    for (; i < count; ++i) sums[0] += term(i);
  });
  return total(sums);
}

}  // namespace

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
  log_sum_ = static_cast<double>(best) + std::log(sum_of_exponentials(logits, best));
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
  const float best = logits_[static_cast<std::size_t>(top_)];
  const double weight = std::exp(log_sum_ - static_cast<double>(best));
  const double sum =
      weighted_difference(logits_, other.logits_, best) / weight - (log_sum_ - other.log_sum_);
  // Rounding may take the divergence of equal distributions below zero.
  return sum > 0.0 ? sum : 0.0;
}

}  // namespace specquant::decode
