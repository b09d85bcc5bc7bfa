// Acceptance rules: which of the proposed tokens stay, and which token of the target follows them.
#pragma once

#include <memory>
#include <vector>

#include "decode/device.h"
#include "decode/proposal.h"
#include "decode/token_choice.h"

namespace specquant::decode {

// What the target says after one row. A copy, so that it can be kept with a shared prefill.
struct TargetRow {
  std::vector<TopEntry> top;
  std::vector<float> logits;

  static TargetRow copy_of(const Model& model, std::size_t logit_row, const Want& want);
  bool serves(const Want& want) const;
};

// The rows of one sequence in the target's last forward: row 0 is the last committed token.
struct TargetRows {
  const Model& model;
  std::size_t first = 0;

  std::span<const TopEntry> top(int row) const {
    return model.top(first + static_cast<std::size_t>(row));
  }
  std::span<const float> logits(int row) const {
    return model.logits(first + static_cast<std::size_t>(row));
  }
};

struct Verdict {
  std::vector<int> path;  // accepted rows of the proposal, root first
  bool refused = false;   // the rule looked at one more row and refused it
  int32_t next = 0;       // the target's token after the path
};

class Acceptance {
 public:
  Acceptance() = default;
  Acceptance(const Acceptance&) = delete;
  Acceptance& operator=(const Acceptance&) = delete;
  virtual ~Acceptance() = default;

  virtual Want want() const = 0;                                 // of each row of the target
  virtual TokenChoice& draft_choice() = 0;                       // for the drafter
  virtual int32_t first(int request, const TargetRow& row) = 0;  // the token after the prompt
  virtual void decide(int request, const Proposal& proposal, const TargetRows& target,
                      Verdict& verdict) = 0;
};

// A proposed token stays where it is the target's top token (ties to the lower id).
class GreedyAcceptance : public Acceptance {
 public:
  Want want() const override;
  TokenChoice& draft_choice() override { return top_; }
  int32_t first(int request, const TargetRow& row) override;
  void decide(int request, const Proposal& proposal, const TargetRows& target,
              Verdict& verdict) override;

 private:
  TopChoice top_;
};

}  // namespace specquant::decode
