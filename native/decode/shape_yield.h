// How many tokens a round of a shape commits, learned from the rounds that were decoded.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/acceptance.h"
#include "decode/proposal.h"

namespace specquant::decode {

// What became of one sequence's proposal, as far as it says something about other shapes.
struct PathOutcome {
  int room = 0;            // longest path that the sequence had room for
  int longest = 0;         // longest path that was proposed
  std::vector<int> ranks;  // of the accepted tokens among their siblings, by depth
  int refused = 0;         // children of the path's end, all of them refused
};

void describe_path(const Proposal& proposal, const Verdict& verdict, int room,
                   PathOutcome& outcome);

// A share of hits among trials that may change: the latest trials, and a longer past that they lean
// on where they are few.
class Share {
 public:
  void add(bool hit);
  void forget();         // what lies back by one more round counts less
  void forget_latest();  // the latest trials become past ones
  // The share in the past, leaning on `prior` where there is none.
  double past(double prior) const;
  // The share among the latest trials, leaning on the one that the past lets expect.
  double latest(double expected) const;
  double trials() const { return all_trials_; }

 private:
  double trials_ = 0.0, hits_ = 0.0;          // the latest
  double all_trials_ = 0.0, all_hits_ = 0.0;  // and the past
};

// Chances that a path goes on, by depth: entry 0 is of the first drafted token.
class PathChances {
 public:
  void add(int depth, bool on);
  void forget();
  void forget_latest();
  // Expected length of a path of at most `depth` tokens. `prior` is the chance at the first depth
  // where nothing is known; deeper, it is that of the depth before. `optimism` 0 is the mean; 1
  // adds a standard deviation of what is not known yet to each chance.
  double expected_length(int depth, double prior, double optimism) const;

 private:
  std::array<Share, kMaxDrafted> shares_;
};

// Acceptance lengths of several shapes of one drafter. Chains share what was learned by position.
// A tree has its own chances by depth, and before it has been tried those that follow from how
// often a token of each rank among its siblings was the right one.
class ShapeYield {
 public:
  explicit ShapeYield(std::vector<Shape> shapes);

  void add(int shape, const PathOutcome& outcome);
  // A round in which nothing was drafted: what was learned last may no longer hold.
  void pass();

  // Tokens committed by a round of one sequence, the target's own included.
  double tokens(int shape, double optimism) const;
  // Drafted tokens of a round of one sequence.
  double drafted(int shape) const;

 private:
  std::vector<Shape> shapes_;
  PathChances chains_;
  PathChances proposed_;                  // that a chain is proposed so far, accepted or not
  std::vector<PathChances> trees_;        // by shape
  std::array<Share, kMaxDrafted> ranks_;  // given that no sibling of lower rank was right
  double rank_chance(int rank) const;
  double first_chance(const Shape& shape) const;
  void add_ranks(const PathOutcome& outcome);
};

}  // namespace specquant::decode
