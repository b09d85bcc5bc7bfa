// The target's own weights at another precision, in the target's own cache (QSpec, arXiv
// 2410.11305: w4a4 drafts for w4a16). What a draft step writes there, verification overwrites.
#pragma once

#include "decode/device.h"
#include "decode/drafter.h"

namespace specquant::decode {

class SelfDrafter : public Drafter {
 public:
  SelfDrafter(Model& target, Precision precision);

  void begin(int slot, std::span<const int32_t> prompt) override;
  void propose(std::span<const Draftable> sequences, const Drafting& drafting,
               std::span<Proposal> proposals) override;
  void verified(int slot, std::span<const int> path) override;

 private:
  Model& target_;
  Precision precision_;
  std::vector<Rows> batch_;
  std::vector<std::size_t> drafting_;  // indices of the sequences in batch_
};

}  // namespace specquant::decode
