#include "decode/sampling.h"

namespace specquant::decode {

int32_t SamplingChoice::choose(Place place, const DraftRow& row) {
  // Tokens of a reduced vocabulary are drawn as entries, of which the others have no part.
  draft_.assign(row.logits, sampling_.warp);
  const int32_t entry = draft_.draw(uniform(sampling_.seed, place, Purpose::draft));
  return row.vocabulary.empty() ? entry : row.vocabulary[static_cast<std::size_t>(entry)];
}

Want SamplingAcceptance::want() const {
  return {.rows = LogitRows::all, .top_k = 1, .logits = true};
}

int32_t SamplingAcceptance::first(Place place, const TargetRow& row) {
  target_.assign(row.logits, sampling_.warp);
  return target_.draw(uniform(sampling_.seed, place, Purpose::token));
}

void SamplingAcceptance::decide(Place next, const Proposal& proposal, const TargetRows& target,
                                Verdict& verdict) {
  verdict.path.clear();
  for (bool extended = true; extended; ++next.position) {
    const int row = verdict.end();
    target_.assign(target.logits(row), sampling_.warp);
    if (proposal.drawn && row + 1 < proposal.rows()) {
      extended = keep_or_replace(next, proposal, verdict);
    } else {
      verdict.next = target_.draw(uniform(sampling_.seed, next, Purpose::token));
      extended = verdict.follow(proposal);
    }
  }
}

bool SamplingAcceptance::keep_or_replace(Place place, const Proposal& proposal, Verdict& verdict) {
  const auto row = static_cast<std::size_t>(verdict.end());
  draft_.assign(proposal.logits_after(verdict.end()), proposal.vocabulary, target_.size(),
                sampling_.warp);
  const int32_t token = proposal.tokens[row];
  const double chance = uniform(sampling_.seed, place, Purpose::accept);
  verdict.refused = chance * draft_.probability(token) >= target_.probability(token);
  if (!verdict.refused) {
    verdict.path.push_back(verdict.end() + 1);
    return true;
  }
  leave_residual(target_, draft_);
  verdict.next = target_.draw(uniform(sampling_.seed, place, Purpose::token));
  return false;
}

void SamplingAcceptance::leave_residual(SamplingDistribution& target,
                                        const SamplingDistribution& draft) {
  target.subtract(draft);
}

}  // namespace specquant::decode
