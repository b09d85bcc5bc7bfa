#include "decode/acceptance.h"

namespace specquant::decode {

TargetRow TargetRow::copy_of(const Model& model, std::size_t logit_row, const Want& want) {
  TargetRow row;
  const auto top = model.top(logit_row);
  row.top.assign(top.begin(), top.end());
  if (want.logits) {
    const auto logits = model.logits(logit_row);
    row.logits.assign(logits.begin(), logits.end());
  }
  return row;
}

bool TargetRow::serves(const Want& want) const {
  return static_cast<int>(top.size()) >= want.top_k && (!want.logits || !logits.empty());
}

bool Verdict::follow(const Proposal& proposal) {
  const int parent = end();
  refused = false;
  for (int row = parent + 1; row < proposal.rows(); ++row) {
    const auto node = static_cast<std::size_t>(row) - 1;
    if (proposal.parents[node] != parent) continue;
    refused = proposal.tokens[node] != next;
    if (refused) continue;
    path.push_back(row);
    return true;
  }
  return false;
}

Want GreedyAcceptance::want() const { return {.rows = LogitRows::all, .top_k = 1}; }

int32_t GreedyAcceptance::first(Place, const TargetRow& row) { return row.top[0].token; }

void GreedyAcceptance::decide(Place, const Proposal& proposal, const TargetRows& target,
                              Verdict& verdict) {
  verdict.path.clear();
  do {
    verdict.next = target.top(verdict.end())[0].token;
  } while (verdict.follow(proposal));
}

}  // namespace specquant::decode
