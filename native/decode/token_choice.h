// How a drafter takes the tokens of a chain from what it computed. The acceptance rule names it:
// rejection sampling needs tokens drawn from the drafter's distribution, the other rules its best
// guess. Trees are always made of best guesses.
#pragma once

#include <cstdint>
#include <span>

#include "decode/device.h"
#include "decode/place.h"

namespace specquant::decode {

// What the drafter says after one row.
struct DraftRow {
  std::span<const TopEntry> top;        // the best entry, at least
  std::span<const float> logits;        // the whole row, where the choice draws; may be empty
  std::span<const int32_t> vocabulary;  // token of each entry of `logits`; empty: entry i's is i
};

class TokenChoice {
 public:
  TokenChoice() = default;
  TokenChoice(const TokenChoice&) = delete;
  TokenChoice& operator=(const TokenChoice&) = delete;
  virtual ~TokenChoice() = default;

  // Tokens are drawn at random: choose() needs the logits, and the proposal keeps them.
  virtual bool draws() const = 0;
  // The drafted token that stands at `place`. A pure function: nothing is remembered.
  virtual int32_t choose(Place place, const DraftRow& row) = 0;
};

// The drafter's top token.
class TopChoice final : public TokenChoice {
 public:
  bool draws() const override { return false; }
  int32_t choose(Place, const DraftRow& row) override { return row.top[0].token; }
};

}  // namespace specquant::decode
