#include "decode/self_drafter.h"

namespace specquant::decode {

SelfDrafter::SelfDrafter(Model& target, Precision precision)
    : target_(target), precision_(precision) {}

void SelfDrafter::begin(int, std::span<const int32_t>) {}

void SelfDrafter::verified(int, std::span<const int>) {}

void SelfDrafter::propose(std::span<const Draftable> sequences, const Drafting& drafting,
                          std::span<Proposal> proposals) {
  const bool draws = drafting.choice.draws();
  const bool keeps = draws || drafting.keep_logits;
  const Want want{.rows = LogitRows::last, .top_k = 1, .logits = keeps};
  for (int step = 0; step < drafting.shape.depth; ++step) {
    batch_.clear();
    drafting_.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Draftable& sequence = sequences[i];
      if (step >= sequence.depth) continue;
      const std::span<const int32_t> token =
          step == 0 ? sequence.tokens.last(1)
                    : std::span<const int32_t>(proposals[i].tokens).last(1);
      const int cached = static_cast<int>(sequence.tokens.size()) - 1;
      batch_.push_back({.slot = sequence.slot, .base = cached + step, .tokens = token});
      drafting_.push_back(i);
    }
    if (batch_.empty()) return;
    target_.forward(precision_, batch_, want);
    for (std::size_t row = 0; row < drafting_.size(); ++row) {
      Proposal& proposal = proposals[drafting_[row]];
      const DraftRow said{
          target_.top(row), draws ? target_.logits(row) : std::span<const float>(), {}};
      const Draftable& sequence = sequences[drafting_[row]];
      const int position = static_cast<int>(sequence.tokens.size()) + step;
      proposal.add(drafting.choice.choose({sequence.request, position}, said), step);
      proposal.drawn = draws;
      if (keeps) proposal.add_logits(target_.logits(row));
    }
  }
}

}  // namespace specquant::decode
