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
  // Rows without a logit row between them; a negative one is an earlier token's.
  std::span<const float> features(int row) const {
    return model.features(first + static_cast<std::size_t>(row));
  }
};

struct Verdict {
  std::vector<int> path;  // accepted rows of the proposal, root first
  bool refused = false;   // the rule looked at one more row and refused it
  int32_t next = 0;       // the target's token after the path

  int end() const { return path.empty() ? 0 : path.back(); }

  // Extends the path by that child of its end which is `next`; false where none is. `refused` says
  // that there were children and none of them was.
  bool follow(const Proposal& proposal);
};

class Acceptance {
 public:
  Acceptance() = default;
  Acceptance(const Acceptance&) = delete;
  Acceptance& operator=(const Acceptance&) = delete;
  virtual ~Acceptance() = default;

  virtual Want want() const = 0;            // of each row of the target
  virtual TokenChoice& draft_choice() = 0;  // for the drafter
  // The token after the prompt, which stands at `place`.
  virtual int32_t first(Place place, const TargetRow& row) = 0;
  // `next` is the place of the token after row 0.
  virtual void decide(Place next, const Proposal& proposal, const TargetRows& target,
                      Verdict& verdict) = 0;
};

// A proposed token stays where it is the target's top token (ties to the lower id).
class GreedyAcceptance : public Acceptance {
 public:
  Want want() const override;
  TokenChoice& draft_choice() override { return top_; }
  int32_t first(Place place, const TargetRow& row) override;
  void decide(Place next, const Proposal& proposal, const TargetRows& target,
              Verdict& verdict) override;

 private:
  TopChoice top_;
};

}  // namespace specquant::decode
