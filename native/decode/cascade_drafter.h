// Hierarchical speculation: a drafter that is itself a whole speculative decoder. An inner drafter
// proposes, the model in the middle verifies, and what it commits becomes one chain for the target
// (SpecMQuant, arXiv 2505.22179: a head's tree under a small model under a chain of six and more).
#pragma once

#include <memory>
#include <vector>

#include "decode/acceptance.h"
#include "decode/device.h"
#include "decode/drafter.h"
#include "decode/verification.h"

namespace specquant::decode {

class CascadeDrafter : public Drafter {
 public:
  // `inner` drafts `inner_shape` for `middle`; `acceptance` is the middle's rule. The middle
  // decodes until the round's depth is reached, so that its last round may lead up to
  // inner_shape.depth tokens beyond.
  CascadeDrafter(Model& middle, Precision precision, std::unique_ptr<Drafter> inner,
                 const Shape& inner_shape, Acceptance& acceptance, int slots);

  void begin(int slot, std::span<const int32_t> prompt, std::span<const float> features) override;
  void propose(std::span<const Draftable> sequences, const Drafting& drafting,
               std::span<Proposal> proposals) override;
  void verified(int slot, std::span<const int> path) override;
  void rewind(int slot, int length) override;
  const LevelColumns* levels() const override { return &levels_; }

 private:
  struct Slot {
    std::vector<int32_t> tokens;  // of the sequence, with those that the target has yet to verify
    int verified = 0;             // tokens that the target has committed
    int cached = 0;               // tokens in the middle's cache
  };
  Model& middle_;
  Precision precision_;
  std::unique_ptr<Drafter> inner_;
  Shape inner_shape_;
  Acceptance& acceptance_;
  std::vector<Slot> slots_;
  LevelColumns levels_;

  // Of one inner round, kept for their memory.
  std::vector<std::size_t> decoding_;  // sequences that lack tokens
  std::vector<Draftable> draftables_;
  std::vector<Verifiable> verifiables_;
  std::vector<Proposal> inner_proposals_;
  Verification verification_;
  Verdict verdict_;

  void decode_round(std::span<const Draftable> sequences, bool keep_logits,
                    std::span<Proposal> proposals);
  void judge(std::size_t index, const Draftable& sequence, bool keep_logits, Proposal& proposal);
};

}  // namespace specquant::decode
