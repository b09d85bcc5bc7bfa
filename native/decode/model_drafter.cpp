#include "decode/model_drafter.h"

#include <algorithm>

#include "decode/prefill.h"

namespace specquant::decode {

ModelDrafter::ModelDrafter(Model& model, Precision precision, int slots)
    : model_(model),
      precision_(precision),
      draft_(model, precision),
      slots_(static_cast<std::size_t>(slots)) {}

void ModelDrafter::begin(int slot, std::span<const int32_t> prompt, std::span<const float>) {
  prefill(model_, precision_, slot, prompt, {.rows = LogitRows::none, .top_k = 0});
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  state.cached = static_cast<int>(prompt.size());
  state.entries.clear();
}

void ModelDrafter::propose(std::span<const Draftable> sequences, const Drafting& drafting,
                           std::span<Proposal> proposals) {
  starts_.clear();
  for (const Draftable& sequence : sequences) {
    const int cached = slots_[static_cast<std::size_t>(sequence.slot)].cached;
    starts_.push_back({.next = next_place(sequence),
                       .slot = sequence.slot,
                       .base = cached,
                       .tokens = sequence.tokens.subspan(static_cast<std::size_t>(cached)),
                       .depth = sequence.depth});
  }
  draft_.propose(starts_, drafting, proposals);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Slot& state = slots_[static_cast<std::size_t>(sequences[i].slot)];
    const auto entries = draft_.entries(i);
    state.entries.assign(entries.begin(), entries.end());
    if (!entries.empty()) state.cached = static_cast<int>(sequences[i].tokens.size());
  }
}

void ModelDrafter::verified(int slot, std::span<const int> path) {
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  accepted_.clear();
  for (const int row : path) {
    const int entry = state.entries[static_cast<std::size_t>(row) - 1];
    if (entry < 0) break;
    accepted_.push_back(entry);
  }
  state.entries.clear();
  const auto count = static_cast<int>(accepted_.size());
  if (count > 0 && accepted_.back() != count - 1) model_.compact(slot, state.cached, accepted_);
  state.cached += count;
}

void ModelDrafter::rewind(int slot, int length) {
  int& cached = slots_[static_cast<std::size_t>(slot)].cached;
  cached = std::min(cached, length);
}

}  // namespace specquant::decode
