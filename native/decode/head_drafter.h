// A trained draft head of the EAGLE kind (arXiv 2401.15077, 2406.16858, 2503.01840): it predicts
// from a token and the target's feature of the position before it. Entry i of its cache, at
// position i, comes from token i + 1 and the feature of token i. Within a round the features are
// the head's own; after verification the entries are computed anew with the target's.
#pragma once

#include <vector>

#include "decode/device.h"
#include "decode/drafter.h"
#include "decode/model_draft.h"

namespace specquant::decode {

class HeadDrafter : public Drafter {
 public:
  // `taps` of the target are what the head was trained on (Want::taps).
  HeadDrafter(Model& head, Precision precision, std::vector<int> taps, int slots);

  std::span<const int> taps() const override { return taps_; }
  void begin(int slot, std::span<const int32_t> prompt, std::span<const float> features) override;
  void propose(std::span<const Draftable> sequences, const Drafting& drafting,
               std::span<Proposal> proposals) override;
  void observe(int slot, std::span<const float> features) override;
  void verified(int slot, std::span<const int> path) override;
  void rewind(int slot, int length) override;

 private:
  struct Slot {
    int cached = 0;               // entries that come from the target's features
    int first = 0;                // position of the first feature that is held
    std::vector<float> features;  // the target's, from `first` to the last that is known
  };
  Model& head_;
  Precision precision_;
  std::vector<int> taps_;
  std::size_t width_;  // of a feature
  ModelDraft draft_;
  std::vector<Slot> slots_;
  std::vector<DraftStart> starts_;

  void drop_old_features(Slot& slot) const;
};

}  // namespace specquant::decode
