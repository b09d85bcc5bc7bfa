#include "decode/shape_yield.h"

#include <algorithm>
#include <cmath>

namespace specquant::decode {
namespace {

// Rounds of one sequence after which an observation counts 1/e: a request's length, and a run's.
constexpr double kLatest = 1.0 - 1.0 / 64, kPast = 1.0 - 1.0 / 512;
constexpr double kPriorTrials = 3.0;  // what a prior weighs in the past, in trials
constexpr double kPastTrials = 6.0;   // the most that the past weighs in the latest share
// Before anything is known a drafter is taken to be a good one, so that it is tried.
constexpr double kFirstRank = 0.75, kLaterRank = 0.3;
constexpr double kNearlyNever = 0.01;

double bounded(double chance) { return std::clamp(chance, kNearlyNever, 1.0 - kNearlyNever); }

}  // namespace

void describe_path(const Proposal& proposal, const Verdict& verdict, int room,
                   PathOutcome& outcome) {
  std::array<int, kMaxDrafted + 1> depths{};
  std::array<int, kMaxDrafted + 1> ranks{};
  std::array<int, kMaxDrafted + 1> children{};
  outcome.room = room;
  outcome.longest = 0;
  for (int row = 1; row < proposal.rows(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    const auto parent = static_cast<std::size_t>(proposal.parents[at - 1]);
    depths[at] = depths[parent] + 1;
    ranks[at] = children[parent]++;
    outcome.longest = std::max(outcome.longest, depths[at]);
  }
  outcome.ranks.clear();
  for (const int row : verdict.path) {
    outcome.ranks.push_back(ranks[static_cast<std::size_t>(row)]);
  }
  outcome.refused = verdict.refused ? children[static_cast<std::size_t>(verdict.end())] : 0;
}

void Share::add(bool hit) {
  trials_ += 1.0;
  all_trials_ += 1.0;
  if (!hit) return;
  hits_ += 1.0;
  all_hits_ += 1.0;
}

void Share::forget() {
  forget_latest();
  all_trials_ *= kPast;
  all_hits_ *= kPast;
}

void Share::forget_latest() {
  trials_ *= kLatest;
  hits_ *= kLatest;
}

double Share::past(double prior) const {
  return (all_hits_ - hits_ + kPriorTrials * prior) / (all_trials_ - trials_ + kPriorTrials);
}

double Share::latest(double expected) const {
  const double weight = std::min(all_trials_ - trials_ + kPriorTrials, kPastTrials);
  return (hits_ + weight * expected) / (trials_ + weight);
}

void PathChances::add(int depth, bool on) { shares_[static_cast<std::size_t>(depth)].add(on); }

void PathChances::forget() {
  for (Share& share : shares_) share.forget();
}

void PathChances::forget_latest() {
  for (Share& share : shares_) share.forget_latest();
}

double PathChances::expected_length(int depth, double prior, double optimism) const {
  double length = 0.0;
  double reached = 1.0;
  double shift = 1.0;  // by which refusals have become more frequent lately, one depth before
  for (int i = 0; i < depth; ++i) {
    const Share& share = shares_[static_cast<std::size_t>(i)];
    const double past = bounded(share.past(prior));
    // Depths that are seldom reached follow those before them.
    const double latest = bounded(share.latest(bounded(1.0 - (1.0 - past) * shift)));
    shift = (1.0 - latest) / (1.0 - past);
    prior = 0.5 * (prior + latest);
    const double unknown = std::sqrt(latest * (1.0 - latest) / (share.trials() + 1.0));
    reached *= std::min(1.0, latest + optimism * unknown);
    length += reached;
  }
  return length;
}

ShapeYield::ShapeYield(std::vector<Shape> shapes)
    : shapes_(std::move(shapes)), trees_(shapes_.size()) {}

void ShapeYield::add(int shape, const PathOutcome& outcome) {
  const auto at = static_cast<std::size_t>(shape);
  const Shape& tried = shapes_[at];
  const int accepted = static_cast<int>(outcome.ranks.size());
  const int room = std::min(outcome.room, tried.depth);
  PathChances& chances = tried.is_chain() ? chains_ : trees_[at];
  chances.forget();
  // Where nothing more was proposed, the path ended as if it had been refused.
  for (int depth = 0; depth < std::min(accepted + 1, room); ++depth) {
    chances.add(depth, depth < accepted);
  }
  if (tried.is_chain()) {
    proposed_.forget();
    for (int depth = 0; depth < std::min(outcome.longest + 1, room); ++depth) {
      proposed_.add(depth, depth < outcome.longest);
    }
  }
  add_ranks(outcome);
}

void ShapeYield::add_ranks(const PathOutcome& outcome) {
  for (Share& share : ranks_) share.forget();
  for (const int rank : outcome.ranks) {
    for (int lower = 0; lower <= rank; ++lower) {
      ranks_[static_cast<std::size_t>(lower)].add(lower == rank);
    }
  }
  for (int rank = 0; rank < outcome.refused; ++rank) {
    ranks_[static_cast<std::size_t>(rank)].add(false);
  }
}

void ShapeYield::pass() {
  chains_.forget_latest();
  proposed_.forget_latest();
  for (PathChances& chances : trees_) chances.forget_latest();
  for (Share& share : ranks_) share.forget_latest();
}

double ShapeYield::rank_chance(int rank) const {
  const Share& share = ranks_[static_cast<std::size_t>(rank)];
  return share.latest(share.past(rank == 0 ? kFirstRank : kLaterRank));
}

// That one of the first row's children is right. How many there will be is not known before the
// tree has been tried: a fair part of the nodes.
double ShapeYield::first_chance(const Shape& shape) const {
  const int children = std::clamp(shape.nodes / shape.depth, 1, shape.top_k);
  double none = 1.0;
  for (int rank = 0; rank < children; ++rank) none *= 1.0 - rank_chance(rank);
  return 1.0 - none;
}

double ShapeYield::tokens(int shape, double optimism) const {
  const auto at = static_cast<std::size_t>(shape);
  const PathChances& chances = shapes_[at].is_chain() ? chains_ : trees_[at];
  return 1.0 + chances.expected_length(shapes_[at].depth, first_chance(shapes_[at]), optimism);
}

double ShapeYield::drafted(int shape) const {
  const Shape& tried = shapes_[static_cast<std::size_t>(shape)];
  if (!tried.is_chain()) return tried.nodes;
  return proposed_.expected_length(tried.depth, 1.0, 0.0);
}

}  // namespace specquant::decode
