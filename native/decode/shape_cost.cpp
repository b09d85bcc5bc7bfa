#include "decode/shape_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace specquant::decode {
namespace {

// Weights of a new measurement, of the logarithm, and how far one may reach: a neighbour on a
// shared machine can make a round last many times as long.
constexpr double kOwnWeight = 0.1, kCommonWeight = 0.1, kReach = 1.5;
constexpr double kOtherWeight = 0.1, kCatchUpWeight = 0.3;
constexpr double kShortest = 1e-9;  // a clock may stand still
// Of drafting one token in plain rounds, before any drafting was timed.
constexpr double kFirstDraft = 0.2;

}  // namespace

void TimeCurve::follow(int size, double seconds) {
  seconds = std::max(seconds, kShortest);
  if (points_.empty()) return set(size, seconds);
  const double expected = at(size);
  const double ratio = std::clamp(seconds / expected, 1.0 / kReach, kReach);
  points_.try_emplace(size, expected);
  const double common = std::pow(ratio, kCommonWeight);
  for (auto& [other, point] : points_) point *= common;
  points_[size] *= std::pow(ratio, kOwnWeight);
}

double TimeCurve::at(double size) const {
  auto above = points_.upper_bound(static_cast<int>(size));
  if (above == points_.begin()) return above->second;
  if (above == points_.end()) {
    if (points_.size() == 1) return points_.begin()->second;
    --above;
  }
  const auto below = std::prev(above);
  const double slope = std::max(0.0, above->second - below->second) / (above->first - below->first);
  return below->second + slope * (size - below->first);
}

ShapeCost::ShapeCost(std::vector<Shape> shapes)
    : shapes_(std::move(shapes)), drafts_(shapes_.size()) {}

void ShapeCost::add_target(const RoundTimes& times) {
  target_.follow(times.rows, times.verify_s);
  const double other = times.other_s / times.sequences;
  other_ = other_known_ ? std::min(other, kReach * other_ + kShortest) * kOtherWeight +
                              other_ * (1.0 - kOtherWeight)
                        : other;
  other_known_ = true;
}

void ShapeCost::add_plain(const RoundTimes& times) { add_target(times); }

void ShapeCost::add_drafted(int shape, const RoundTimes& times, int behind, bool complete) {
  add_target(times);
  TimeCurve& curve = drafts_[static_cast<std::size_t>(shape)];
  if (behind > 0) {
    const double excess = std::max(0.0, times.draft_s - drafting(shape, times.sequences)) / behind;
    catch_up_ += kCatchUpWeight * (excess - catch_up_);
  } else if (complete) {
    curve.follow(times.sequences, times.draft_s);
  }
}

double ShapeCost::plain(int sequences) const { return target_.at(sequences) + other_ * sequences; }

double ShapeCost::drafting(int shape, int sequences) const {
  const auto at = static_cast<std::size_t>(shape);
  if (!drafts_[at].empty()) return drafts_[at].at(sequences);
  // As the shape nearest in depth that was timed: a level costs about the same in all of them.
  const int depth = shapes_[at].depth;
  double seconds = kFirstDraft * target_.at(sequences) * depth;
  int nearest = kMaxDrafted + 1;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    const int distance = std::abs(shapes_[i].depth - depth);
    if (drafts_[i].empty() || distance >= nearest) continue;
    nearest = distance;
    seconds = drafts_[i].at(sequences) * depth / shapes_[i].depth;
  }
  return seconds;
}

double ShapeCost::drafted(int shape, int sequences, double drafted, int behind) const {
  return drafting(shape, sequences) + catch_up_ * behind + target_.at(sequences * (1.0 + drafted)) +
         other_ * sequences;
}

}  // namespace specquant::decode
