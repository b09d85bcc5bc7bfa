#include "decode/cascade_drafter.h"

#include <algorithm>
#include <utility>

#include "decode/prefill.h"

namespace specquant::decode {

CascadeDrafter::CascadeDrafter(Model& middle, Precision precision, std::unique_ptr<Drafter> inner,
                               const Shape& inner_shape, Acceptance& acceptance, int slots)
    : middle_(middle),
      precision_(precision),
      inner_(std::move(inner)),
      inner_shape_(inner_shape),
      acceptance_(acceptance),
      slots_(static_cast<std::size_t>(slots)),
      inner_proposals_(slots_.size()) {}

void CascadeDrafter::begin(int slot, std::span<const int32_t> prompt, std::span<const float>) {
  const Prefilled prefilled =
      prefill(middle_, precision_, slot, prompt,
              {.rows = LogitRows::none, .top_k = 0, .taps = inner_->taps()});
  inner_->begin(slot, prompt, prefilled.features);
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  state.tokens.assign(prompt.begin(), prompt.end());
  state.verified = state.cached = static_cast<int>(prompt.size());
}

void CascadeDrafter::propose(std::span<const Draftable> sequences, const Drafting& drafting,
                             std::span<Proposal> proposals) {
  for (const Draftable& sequence : sequences) {
    Slot& state = slots_[static_cast<std::size_t>(sequence.slot)];
    const auto known = static_cast<std::ptrdiff_t>(state.tokens.size());
    state.tokens.insert(state.tokens.end(), sequence.tokens.begin() + known, sequence.tokens.end());
    state.verified = static_cast<int>(sequence.tokens.size());
  }
  while (true) {
    decoding_.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto pending = static_cast<int>(proposals[i].tokens.size());
      if (pending < std::min(drafting.shape.depth, sequences[i].depth)) decoding_.push_back(i);
    }
    if (decoding_.empty()) return;
    decode_round(sequences, drafting.keep_logits, proposals);
  }
}

// One round of the middle's own speculative decoding.
void CascadeDrafter::decode_round(std::span<const Draftable> sequences, bool keep_logits,
                                  std::span<Proposal> proposals) {
  draftables_.clear();
  verifiables_.clear();
  for (std::size_t index = 0; index < decoding_.size(); ++index) {
    const Draftable& sequence = sequences[decoding_[index]];
    const Slot& state = slots_[static_cast<std::size_t>(sequence.slot)];
    const auto pending = static_cast<int>(proposals[decoding_[index]].tokens.size());
    // Where the target took all of the last chain, the middle lacks more than the last token, and a
    // head has no feature to go on: that round is one of plain decoding.
    const bool drafts = state.cached + 1 == static_cast<int>(state.tokens.size());
    inner_proposals_[index].clear();
    draftables_.push_back({.request = sequence.request,
                           .slot = sequence.slot,
                           .tokens = state.tokens,
                           .depth = drafts ? sequence.depth - pending - 1 : 0});
    verifiables_.push_back({sequence.slot, state.tokens, state.cached});
  }
  const auto inner_proposals = std::span(inner_proposals_).first(decoding_.size());
  inner_->propose(draftables_, {.shape = inner_shape_, .choice = acceptance_.draft_choice()},
                  inner_proposals);
  Want want = acceptance_.want();
  want.rows = LogitRows::all;
  want.logits = want.logits || keep_logits;
  want.taps = inner_->taps();
  verification_.forward(middle_, precision_, verifiables_, inner_proposals, want);
  for (std::size_t index = 0; index < decoding_.size(); ++index) {
    const std::size_t i = decoding_[index];
    judge(index, sequences[i], keep_logits, proposals[i]);
  }
}

void CascadeDrafter::judge(std::size_t index, const Draftable& sequence, bool keep_logits,
                           Proposal& proposal) {
  Slot& state = slots_[static_cast<std::size_t>(sequence.slot)];
  const Proposal& inner = inner_proposals_[index];
  const TargetRows rows = verification_.rows(middle_, index);
  const int last = static_cast<int>(state.tokens.size()) - 1;
  acceptance_.decide({sequence.request, last + 1}, inner, rows, verdict_);
  if (!inner_->taps().empty()) {
    for (int row = state.cached - last; row <= 0; ++row) {
      inner_->observe(sequence.slot, rows.features(row));
    }
    for (const int row : verdict_.path) inner_->observe(sequence.slot, rows.features(row));
  }
  keep_path(middle_, sequence.slot, last, inner, verdict_.path);
  inner_->verified(sequence.slot, verdict_.path);

  int parent = 0;  // row of the middle that the next token follows
  const auto commit = [&](int32_t token) {
    const auto place = static_cast<int>(proposal.tokens.size());
    if (keep_logits) proposal.set_logits(place, rows.logits(parent));
    proposal.add(token, place);
    state.tokens.push_back(token);
  };
  for (const int row : verdict_.path) {
    commit(inner.tokens[static_cast<std::size_t>(row) - 1]);
    parent = row;
  }
  commit(verdict_.next);
  state.cached = static_cast<int>(state.tokens.size()) - 1;

  const auto accepted = static_cast<int>(verdict_.path.size());
  levels_.request.push_back(sequence.request);
  levels_.drafted.push_back(static_cast<int>(inner.tokens.size()));
  levels_.reached.push_back(accepted + (verdict_.refused ? 1 : 0));
  levels_.accepted.push_back(accepted);
  levels_.committed.push_back(accepted + 1);
}

void CascadeDrafter::verified(int slot, std::span<const int> path) {
  const int committed = slots_[static_cast<std::size_t>(slot)].verified;
  rewind(slot, committed + static_cast<int>(path.size()));
}

void CascadeDrafter::rewind(int slot, int length) {
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  if (static_cast<int>(state.tokens.size()) > length) {
    state.tokens.resize(static_cast<std::size_t>(length));
  }
  state.verified = static_cast<int>(state.tokens.size());
  state.cached = std::min(state.cached, length);
  inner_->rewind(slot, length);
}

}  // namespace specquant::decode
