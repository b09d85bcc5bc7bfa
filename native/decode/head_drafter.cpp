#include "decode/head_drafter.h"

#include <algorithm>

#include "decode/prefill.h"

namespace specquant::decode {
namespace {

// Features behind the cache that rewind() may ask for: those of one proposal.
constexpr int kKeptFeatures = kMaxDrafted + 1;
constexpr int kHeldFeatures = 4 * kKeptFeatures;  // so that they are moved seldom

}  // namespace

HeadDrafter::HeadDrafter(Model& head, Precision precision, std::vector<int> taps, int slots)
    : head_(head),
      precision_(precision),
      taps_(std::move(taps)),
      width_(static_cast<std::size_t>(head.shape().feature_width)),
      draft_(head, precision),
      slots_(static_cast<std::size_t>(slots)) {}

void HeadDrafter::begin(int slot, std::span<const int32_t> prompt,
                        std::span<const float> features) {
  const std::size_t pairs = prompt.size() - 1;  // of a token and the feature before it
  prefill(head_, precision_, slot, prompt.subspan(1), {.rows = LogitRows::none, .top_k = 0},
          features.first(pairs * width_));
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  state.cached = state.first = static_cast<int>(pairs);
  state.features.assign(features.begin() + static_cast<std::ptrdiff_t>(pairs * width_),
                        features.end());
}

void HeadDrafter::observe(int slot, std::span<const float> features) {
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  state.features.insert(state.features.end(), features.begin(), features.end());
}

void HeadDrafter::propose(std::span<const Draftable> sequences, const Drafting& drafting,
                          std::span<Proposal> proposals) {
  starts_.clear();
  for (const Draftable& sequence : sequences) {
    Slot& state = slots_[static_cast<std::size_t>(sequence.slot)];
    drop_old_features(state);
    const auto cached = static_cast<std::size_t>(state.cached);
    starts_.push_back(
        {.next = next_place(sequence),
         .slot = sequence.slot,
         .base = state.cached,
         .tokens = sequence.tokens.subspan(cached + 1),
         .features = std::span<const float>(state.features)
                         .subspan((cached - static_cast<std::size_t>(state.first)) * width_),
         .depth = sequence.depth});
  }
  draft_.propose(starts_, drafting, proposals);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (draft_.entries(i).empty()) continue;
    slots_[static_cast<std::size_t>(sequences[i].slot)].cached =
        static_cast<int>(sequences[i].tokens.size()) - 1;
  }
}

// What the head drafted from its own features is not kept.
void HeadDrafter::verified(int, std::span<const int>) {}

void HeadDrafter::rewind(int slot, int length) {
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  state.cached = std::min(state.cached, length - 1);
  const std::size_t known = static_cast<std::size_t>(length - state.first) * width_;
  state.features.resize(std::min(state.features.size(), known));
}

void HeadDrafter::drop_old_features(Slot& slot) const {
  if (slot.cached - slot.first < kHeldFeatures) return;
  const int dropped = slot.cached - kKeptFeatures - slot.first;
  slot.features.erase(slot.features.begin(),
                      slot.features.begin() +
                          static_cast<std::ptrdiff_t>(static_cast<std::size_t>(dropped) * width_));
  slot.first += dropped;
}

}  // namespace specquant::decode
