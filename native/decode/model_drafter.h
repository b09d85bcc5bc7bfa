// A model of its own (usually a small one) with a cache of its own, which follows the sequence: it
// keeps what was accepted of its proposals and catches up on the rest when it next drafts
// (Leviathan et al., arXiv 2211.17192).
#pragma once

#include <vector>

#include "decode/device.h"
#include "decode/drafter.h"
#include "decode/model_draft.h"

namespace specquant::decode {

class ModelDrafter : public Drafter {
 public:
  ModelDrafter(Model& model, Precision precision, int slots);

  void begin(int slot, std::span<const int32_t> prompt, std::span<const float> features) override;
  void propose(std::span<const Draftable> sequences, const Drafting& drafting,
               std::span<Proposal> proposals) override;
  void verified(int slot, std::span<const int> path) override;
  void rewind(int slot, int length) override;

 private:
  struct Slot {
    int cached = 0;            // tokens of the sequence in the cache
    std::vector<int> entries;  // of the proposal that awaits verification (ModelDraft::entries)
  };
  Model& model_;
  Precision precision_;
  ModelDraft draft_;
  std::vector<Slot> slots_;
  std::vector<DraftStart> starts_;
  std::vector<int> accepted_;
};

}  // namespace specquant::decode
