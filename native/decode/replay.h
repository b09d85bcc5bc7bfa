// Replay: how many drafted tokens stay is drawn from a profile instead of compared with the target.
// For synthetic weights, whose own agreement means nothing; every computation is done all the same.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/acceptance.h"

namespace specquant::decode {

// accepted[k] is the probability that exactly k drafted tokens of a round stay.
struct ReplayProfile {
  std::vector<double> accepted;

  // Throws std::invalid_argument that names the entry: probabilities are 0 to 1, their sum is 1 up
  // to 1e-6, and no round accepts more than `depth` tokens.
  void validate(int depth) const;
};

// The tokens that stay are the first ones of the path to the deepest drafted token, the first such
// one (of a tree: the most probable); a draw beyond its end is cut to it. The target's top token
// follows.
class ReplayAcceptance : public Acceptance {
 public:
  ReplayAcceptance(const ReplayProfile& profile, uint64_t seed);

  Want want() const override;
  TokenChoice& draft_choice() override { return top_; }
  int32_t first(Place place, const TargetRow& row) override;
  void decide(Place next, const Proposal& proposal, const TargetRows& target,
              Verdict& verdict) override;

 private:
  std::vector<double> cumulative_;  // probability of at most k
  uint64_t seed_;
  TopChoice top_;
  std::vector<int> depths_;
};

}  // namespace specquant::decode
