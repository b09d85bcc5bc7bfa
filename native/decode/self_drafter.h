// The target's own weights at another precision, in the target's own cache (QSpec, arXiv
// 2410.11305: w4a4 drafts for w4a16). What a draft step writes there, verification overwrites.
#pragma once

#include "decode/device.h"
#include "decode/drafter.h"
#include "decode/model_draft.h"

namespace specquant::decode {

class SelfDrafter : public Drafter {
 public:
  SelfDrafter(Model& target, Precision precision) : draft_(target, precision) {}

  void begin(int slot, std::span<const int32_t> prompt, std::span<const float> features) override;
  void propose(std::span<const Draftable> sequences, const Drafting& drafting,
               std::span<Proposal> proposals) override;
  void verified(int slot, std::span<const int> path) override;
  void rewind(int slot, int length) override;

 private:
  ModelDraft draft_;
  std::vector<DraftStart> starts_;
};

}  // namespace specquant::decode
