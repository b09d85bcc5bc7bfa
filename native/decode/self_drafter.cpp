#include "decode/self_drafter.h"

namespace specquant::decode {

SelfDrafter::SelfDrafter(Model& target, Precision precision, const Shape& shape)
    : target_(target), precision_(precision), shape_(shape) {}

void SelfDrafter::begin(int, std::span<const int32_t>) {}

void SelfDrafter::verified(int, std::span<const int>) {}

void SelfDrafter::propose(std::span<const Draftable> sequences, bool keep_logits,
                          std::span<Proposal> proposals) {
  const Want want{.rows = LogitRows::last, .top_k = 1, .logits = keep_logits};
  for (int step = 0; step < shape_.depth; ++step) {
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
      proposal.add(target_.top(row)[0].token, step);
      if (keep_logits) proposal.add_logits(target_.logits(row));
    }
  }
}

}  // namespace specquant::decode
