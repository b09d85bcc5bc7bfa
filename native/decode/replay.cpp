#include "decode/replay.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "decode/random.h"

namespace specquant::decode {
namespace {

constexpr double kSumTolerance = 1e-6;

}  // namespace

void ReplayProfile::validate(int depth) const {
  if (accepted.empty()) throw std::invalid_argument("it has no probabilities");
  if (accepted.size() > static_cast<std::size_t>(depth) + 1) {
    throw std::invalid_argument("it has " + std::to_string(accepted.size()) +
                                " probabilities; the longest path of the shape has " +
                                std::to_string(depth) + " tokens, so that " +
                                std::to_string(depth + 1) + " are the most");
  }
  for (std::size_t k = 0; k < accepted.size(); ++k) {
    if (accepted[k] >= 0.0 && accepted[k] <= 1.0) continue;
    throw std::invalid_argument("its entry " + std::to_string(k) +
                                " is no probability between 0 and 1");
  }
  const double sum = std::accumulate(accepted.begin(), accepted.end(), 0.0);
  if (std::abs(sum - 1.0) > kSumTolerance) {
    throw std::invalid_argument("its probabilities add up to " + std::to_string(sum) +
                                " instead of 1");
  }
}

ReplayAcceptance::ReplayAcceptance(const ReplayProfile& profile, uint64_t seed) : seed_(seed) {
  std::partial_sum(profile.accepted.begin(), profile.accepted.end(),
                   std::back_inserter(cumulative_));
}

Want ReplayAcceptance::want() const { return {.rows = LogitRows::all, .top_k = 1}; }

int32_t ReplayAcceptance::first(Place, const TargetRow& row) { return row.top[0].token; }

void ReplayAcceptance::decide(Place next, const Proposal& proposal, const TargetRows& target,
                              Verdict& verdict) {
  depths_.assign(1, 0);
  int deepest = 0;
  for (const int parent : proposal.parents) {
    depths_.push_back(depths_[static_cast<std::size_t>(parent)] + 1);
    if (depths_.back() > depths_[static_cast<std::size_t>(deepest)]) {
      deepest = static_cast<int>(depths_.size()) - 1;
    }
  }
  verdict.path.clear();
  for (int row = deepest; row > 0; row = proposal.parents[static_cast<std::size_t>(row) - 1]) {
    verdict.path.push_back(row);
  }
  std::ranges::reverse(verdict.path);

  const double drawn = uniform(seed_, next, Purpose::length) * cumulative_.back();
  const auto accepted =
      static_cast<std::size_t>(std::ranges::upper_bound(cumulative_, drawn) - cumulative_.begin());
  verdict.refused = accepted < verdict.path.size();
  if (verdict.refused) verdict.path.resize(accepted);
  verdict.next = target.top(verdict.end())[0].token;
}

}  // namespace specquant::decode
