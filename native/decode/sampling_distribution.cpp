#include "decode/sampling_distribution.h"

#include <algorithm>
#include <array>

#include "decode/exponential.h"

namespace specquant::decode {
namespace {

constexpr std::size_t kStretch = 512, kLanes = 16;
constexpr std::size_t kFirstSorted = 32, kMoreSorted = 8;
// Below, temperatures would leave the range of single precision; one token has it all long before.
constexpr double kLeastTemperature = 1e-4;
constexpr float kLeastExponent = -80.0F;  // e^-80 is 0 beside 1, even times a vocabulary

void exponentials(std::span<const float> logits, const Warp& warp, float* weights) {
  const float best = *std::ranges::max_element(logits);
  const auto scale = static_cast<float>(1.0 / std::max(warp.temperature, kLeastTemperature));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float x = std::max((logits[i] - best) * scale, kLeastExponent);
    weights[i] = x > kLeastExponent ? exponential(x) : 0.0F;
  }
}

double sum(std::span<const float> weights) {
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= weights.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(weights[i + lane]);
    }
  }
  for (; i < weights.size(); ++i) lanes[0] += static_cast<double>(weights[i]);
  double all = 0.0;
  for (const double lane : lanes) all += lane;
  return all;
}

}  // namespace

void SamplingDistribution::assign(std::span<const float> logits, const Warp& warp) {
  weights_.resize(logits.size());
  exponentials(logits, warp, weights_.data());
  add_up();
  if (warp.top_p < 1.0) cut(warp.top_p);
}

void SamplingDistribution::assign(std::span<const float> logits,
                                  std::span<const int32_t> vocabulary, std::size_t size,
                                  const Warp& warp) {
  assign(logits, warp);
  if (vocabulary.empty()) return;
  weights_.resize(size, 0.0F);
  // From the last entry on: tokens rise and are never below their index, so none is overwritten.
  for (std::size_t i = vocabulary.size(); i-- > 0;) {
    const auto token = static_cast<std::size_t>(vocabulary[i]);
    if (token == i) break;
    weights_[token] = weights_[i];
    weights_[i] = 0.0F;
  }
  add_up();
}

double SamplingDistribution::probability(int32_t token) const {
  return static_cast<double>(weights_[static_cast<std::size_t>(token)]) / total_;
}

int32_t SamplingDistribution::draw(double uniform) const {
  double left = uniform * total_;
  // Rounding may leave a rest beyond the last token, or the last of a stretch: then it is that one.
  std::size_t chosen = 0;
  for (std::size_t stretch = 0; stretch < sums_.size(); ++stretch) {
    if (sums_[stretch] == 0.0) continue;
    chosen = stretch;
    if (left < sums_[stretch]) break;
    left -= sums_[stretch];
  }
  const std::size_t end = std::min((chosen + 1) * kStretch, weights_.size());
  std::size_t drawn = 0;
  for (std::size_t i = chosen * kStretch; i < end; ++i) {
    if (weights_[i] == 0.0F) continue;
    drawn = i;
    if (left < static_cast<double>(weights_[i])) break;
    left -= static_cast<double>(weights_[i]);
  }
  return static_cast<int32_t>(drawn);
}

void SamplingDistribution::subtract(const SamplingDistribution& other) {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const double left = static_cast<double>(weights_[i]) / total_ -
                        static_cast<double>(other.weights_[i]) / other.total_;
    weights_[i] = static_cast<float>(std::max(left, 0.0));
  }
  add_up();
  if (total_ > 0.0) return;
  weights_ = other.weights_;  // equal up to rounding
  add_up();
}

void SamplingDistribution::cut(double top_p) {
  order_.clear();
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0.0F) order_.push_back(static_cast<int32_t>(i));
  }
  const auto weight = [this](int32_t token) { return weights_[static_cast<std::size_t>(token)]; };
  const auto before = [&](int32_t a, int32_t b) {
    return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
  };
  double kept = 0.0;
  std::size_t sorted = 0;
  std::size_t count = 0;
  for (; count < order_.size() && kept < top_p * total_; ++count) {
    if (count == sorted) {
      sorted = std::min(order_.size(), std::max(kFirstSorted, sorted * kMoreSorted));
      std::partial_sort(order_.begin() + static_cast<std::ptrdiff_t>(count),
                        order_.begin() + static_cast<std::ptrdiff_t>(sorted), order_.end(), before);
    }
    kept += static_cast<double>(weight(order_[count]));
  }
  for (; count < order_.size(); ++count) weights_[static_cast<std::size_t>(order_[count])] = 0.0F;
  add_up();
}

void SamplingDistribution::add_up() {
  sums_.clear();
  total_ = 0.0;
  for (std::size_t begin = 0; begin < weights_.size(); begin += kStretch) {
    sums_.push_back(
        sum(std::span(weights_).subspan(begin, std::min(kStretch, weights_.size() - begin))));
    total_ += sums_.back();
  }
}

}  // namespace specquant::decode
