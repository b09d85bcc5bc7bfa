// A drafter is anything that proposes tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/proposal.h"
#include "decode/token_choice.h"

namespace specquant::decode {

// What a drafter may read of an active sequence. All tokens but the last are in the target's cache.
struct Draftable {
  int request = 0;
  int slot = 0;
  std::span<const int32_t> tokens;  // prompt and output
  int depth = 0;                    // longest path that the sequence has room for; may be 0
};

// Of the first token that is drafted.
inline Place next_place(const Draftable& sequence) {
  return {sequence.request, static_cast<int>(sequence.tokens.size())};
}

// Verification inside a drafter that is itself a decoder: one entry a sequence and inner round.
struct LevelColumns {
  std::vector<int> request, drafted, reached, accepted, committed;
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

  // Of the target's hidden states, those that the drafter reads (Want::taps).
  virtual std::span<const int> taps() const { return {}; }

  // A new sequence takes the slot; its prompt is in the target's cache. `features` are the taps of
  // every token of it. Timed as prefill.
  virtual void begin(int slot, std::span<const int32_t> prompt,
                     std::span<const float> features) = 0;

  // Fills one cleared proposal a sequence.
  virtual void propose(std::span<const Draftable> sequences, const Drafting& drafting,
                       std::span<Proposal> proposals) = 0;

  // The rows of the slot's last proposal that were accepted, root first, right after the target's
  // forward, whose results are still readable. Timed as "other".
  virtual void verified(int slot, std::span<const int> path) = 0;

  // The target's taps of the slot's next token, before verified(): of the token that was the last,
  // then of each accepted one. Called only where there are taps.
  virtual void observe(int, std::span<const float>) {}

  // Only the first `length` tokens of the sequence stay, at most kMaxDrafted fewer than there were:
  // what follows was not accepted by a decoder further out.
  virtual void rewind(int slot, int length) = 0;

  // Null for a drafter that verifies nothing itself.
  virtual const LevelColumns* levels() const { return nullptr; }
};

}  // namespace specquant::decode
