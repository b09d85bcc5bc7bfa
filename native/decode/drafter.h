// A drafter is anything that proposes tokens.
#pragma once

#include <cstdint>
#include <span>

#include "decode/proposal.h"
#include "decode/token_choice.h"

namespace specquant::decode {

// What a drafter may read of an active sequence. All tokens but the last are in the target's cache.
struct Draftable {
  int request = 0;
  int slot = 0;
  std::span<const int32_t> tokens;  // prompt and output
  int depth = 0;                    // longest path that this round may draft; may be 0
};

// How a round drafts.
struct Drafting {
  Shape shape;
  bool keep_logits = false;  // the drafter's logits belong into the proposal, where it has any
  TokenChoice& choice;
};

class Drafter {
 public:
  Drafter() = default;
  Drafter(const Drafter&) = delete;
  Drafter& operator=(const Drafter&) = delete;
  virtual ~Drafter() = default;

  // A new sequence takes the slot; its prompt is in the target's cache. Timed as prefill.
  virtual void begin(int slot, std::span<const int32_t> prompt) = 0;

  // Fills one cleared proposal a sequence.
  virtual void propose(std::span<const Draftable> sequences, const Drafting& drafting,
                       std::span<Proposal> proposals) = 0;

  // The rows of the slot's last proposal that were accepted, root first, right after the target's
  // forward, whose results are still readable. Timed as "other".
  virtual void verified(int slot, std::span<const int> path) = 0;
};

}  // namespace specquant::decode
