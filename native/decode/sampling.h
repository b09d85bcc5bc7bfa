// Sampling: output is distributed as the target's own, at a temperature and top-p, whatever drafts.
#pragma once

#include <cstdint>

#include "decode/acceptance.h"
#include "decode/random.h"
#include "decode/sampling_distribution.h"

namespace specquant::decode {

struct Sampling {
  Warp warp;
  uint64_t seed = 0;
};

// Draws a chain's tokens from the drafter's distribution, warped as the target's is.
class SamplingChoice final : public TokenChoice {
 public:
  explicit SamplingChoice(const Sampling& sampling) : sampling_(sampling) {}
  bool draws() const override { return true; }
  int32_t choose(Place place, const DraftRow& row) override;

 private:
  Sampling sampling_;
  SamplingDistribution draft_;
};

// Rejection sampling (Leviathan et al., arXiv 2211.17192) where the drafter drew its tokens: x,
// drawn from q, stays with probability min(1, p(x) / q(x)); in place of a refused one stands a draw
// from norm(max(p - q, 0)).
//
// A drafter that could propose nothing else has q = 1 for its token, or several of them as
// siblings: x stays with the current p(x); when it is refused, p(x) becomes 0, p is normalised, and
// the next sibling is tried; what is left of p is drawn from at last. That is a draw from p that
// counts as accepted where it equals a child: given that none before was met, child x is met with
// probability p(x) / (1 - p of those before). So it is computed, and since the draw depends on its
// place alone, such output equals that of sampling without a drafter token for token.
class SamplingAcceptance : public Acceptance {
 public:
  explicit SamplingAcceptance(const Sampling& sampling) : sampling_(sampling), choice_(sampling) {}

  Want want() const override;
  TokenChoice& draft_choice() override { return choice_; }
  int32_t first(Place place, const TargetRow& row) override;
  void decide(Place next, const Proposal& proposal, const TargetRows& target,
              Verdict& verdict) override;

 protected:
  // Turns the target's distribution into the one that a refused token's place is drawn from.
  virtual void leave_residual(SamplingDistribution& target, const SamplingDistribution& draft);

 private:
  Sampling sampling_;
  SamplingChoice choice_;
  SamplingDistribution target_, draft_;

  // Judges the drawn child of the path's end; true where the path grew by it.
  bool keep_or_replace(Place place, const Proposal& proposal, Verdict& verdict);
};

}  // namespace specquant::decode
