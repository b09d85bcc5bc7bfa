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

Want GreedyAcceptance::want() const { return {.rows = LogitRows::all, .top_k = 1}; }

int32_t GreedyAcceptance::first(int, const TargetRow& row) { return row.top[0].token; }

void GreedyAcceptance::decide(int, const Proposal& proposal, const TargetRows& target,
                              Verdict& verdict) {
  verdict.path.clear();
  int row = 0;
  while (true) {
    verdict.next = target.top(row)[0].token;
    verdict.refused = false;
    int child = 0;
    for (int node = row; node < proposal.rows() - 1 && child == 0; ++node) {
      const auto index = static_cast<std::size_t>(node);
      if (proposal.parents[index] != row) continue;
      verdict.refused = true;
      if (proposal.tokens[index] == verdict.next) child = node + 1;
    }
    if (child == 0) return;
    verdict.path.push_back(child);
    row = child;
  }
}

}  // namespace specquant::decode
