#include "decode/verification.h"

namespace specquant::decode {
namespace {

// Ancestor words of the last token's row and the proposed ones.
void add_ancestors(const Proposal& proposal, std::vector<uint64_t>& words) {
  words.push_back(1);
  for (std::size_t node = 0; node < proposal.tokens.size(); ++node) {
    const auto parent = static_cast<std::size_t>(proposal.parents[node]);
    words.push_back(words[parent] | (uint64_t{1} << (node + 1)));
  }
}

}  // namespace

int Verification::forward(Model& model, Precision precision, std::span<const Verifiable> sequences,
                          std::span<const Proposal> proposals, const Want& want) {
  if (parts_.size() < sequences.size()) parts_.resize(sequences.size());
  batch_.clear();
  last_tokens_.clear();
  std::size_t rows = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Proposal& proposal = proposals[i];
    auto& [tokens, ancestors] = parts_[i];
    const auto missing = sequences[i].tokens.subspan(static_cast<std::size_t>(sequences[i].cached));
    tokens.assign(missing.begin(), missing.end());
    tokens.insert(tokens.end(), proposal.tokens.begin(), proposal.tokens.end());
    ancestors.clear();
    if (!proposal.is_chain()) add_ancestors(proposal, ancestors);
    batch_.push_back({.slot = sequences[i].slot,
                      .base = sequences[i].cached,
                      .tokens = tokens,
                      .ancestors = ancestors});
    last_tokens_.push_back(rows + missing.size() - 1);
    rows += tokens.size();
  }
  model.forward(precision, batch_, want);
  return static_cast<int>(rows);
}

void keep_path(Model& model, int slot, int cached, const Proposal& proposal,
               std::span<const int> path) {
  if (proposal.is_chain()) return;
  std::vector<int> kept{0};
  kept.insert(kept.end(), path.begin(), path.end());
  model.compact(slot, cached, kept);
}

}  // namespace specquant::decode
