// One forward of a target over what was proposed for several sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/acceptance.h"
#include "decode/device.h"
#include "decode/proposal.h"

namespace specquant::decode {

// A sequence as its target sees it before the round.
struct Verifiable {
  int slot = 0;
  std::span<const int32_t> tokens;
  int cached = 0;  // tokens in the target's cache; all but the last, or fewer without a proposal
};

class Verification {
 public:
  // Proposals hang on the last token of their sequences. Returns the number of rows.
  int forward(Model& model, Precision precision, std::span<const Verifiable> sequences,
              std::span<const Proposal> proposals, const Want& want);

  // Results of the last forward for a sequence: row 0 is its last token.
  TargetRows rows(const Model& model, std::size_t sequence) const {
    return {model, last_tokens_[sequence]};
  }

 private:
  struct Part {
    std::vector<int32_t> tokens;
    std::vector<uint64_t> ancestors;
  };
  std::vector<Part> parts_;  // by sequence, kept for their memory
  std::vector<Rows> batch_;
  std::vector<std::size_t> last_tokens_;
};

// Leaves in the cache, behind `cached` entries, the row of the last token and the accepted ones.
void keep_path(Model& model, int slot, int cached, const Proposal& proposal,
               std::span<const int> path);

}  // namespace specquant::decode
