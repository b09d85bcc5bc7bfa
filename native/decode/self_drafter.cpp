#include "decode/self_drafter.h"

namespace specquant::decode {

void SelfDrafter::begin(int, std::span<const int32_t>, std::span<const float>) {}

void SelfDrafter::verified(int, std::span<const int>) {}

void SelfDrafter::rewind(int, int) {}

void SelfDrafter::propose(std::span<const Draftable> sequences, const Drafting& drafting,
                          std::span<Proposal> proposals) {
  starts_.clear();
  for (const Draftable& sequence : sequences) {
    starts_.push_back({.next = next_place(sequence),
                       .slot = sequence.slot,
                       .base = static_cast<int>(sequence.tokens.size()) - 1,
                       .tokens = sequence.tokens.last(1),
                       .depth = sequence.depth});
  }
  draft_.propose(starts_, drafting, proposals);
}

}  // namespace specquant::decode
