// A tree of drafted tokens that grows level by level towards what the drafter finds most likely, as
// in EAGLE-2 (Li et al., arXiv 2406.16858, section 4): a node's value is the product of the draft
// probabilities on its path, the best nodes of a level are expanded, and the best of all are kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/device.h"
#include "decode/proposal.h"

namespace specquant::decode {

constexpr int kTreeRoot = -1;

// Nodes are numbered in the order of their making, so that a parent's number is the smaller. Among
// equal values the lower number is the better.
class DraftTree {
 public:
  // An empty tree of at most `shape.nodes` nodes, `shape.top_k` children a node, and `depth`
  // levels.
  void start(const Shape& shape, int depth);

  // The drafter's best tokens after a node (kTreeRoot: after the last committed token), largest
  // first, and the logarithm of the sum of exponentials of all its logits.
  void expand(int node, std::span<const TopEntry> best, float log_sum);

  // Closes the level that the last calls of expand() made. Returns its nodes that are to be
  // expanded, best first: `top_k` at most, and none that is not among the best `nodes` of all, for
  // neither it nor what grows from it could be kept. Valid until the next call.
  std::span<const int> next_level();

  // Kept nodes in rising order, once the last level is closed. A kept node's parent is kept.
  std::span<const int> kept() const { return kept_; }
  void add_to(Proposal& proposal) const;

  int size() const { return static_cast<int>(nodes_.size()); }
  int32_t token(int node) const { return nodes_[static_cast<std::size_t>(node)].token; }
  int parent(int node) const { return nodes_[static_cast<std::size_t>(node)].parent; }

 private:
  struct Node {
    int32_t token = 0;
    int parent = kTreeRoot;
    double log_probability = 0.0;  // of the path
  };
  Shape shape_;
  int levels_left_ = 0;
  std::vector<Node> nodes_;
  std::size_t closed_ = 0;    // nodes below this number are of closed levels
  std::vector<int> kept_;     // the best so far
  std::vector<int> ordered_;  // scratch: best first
  std::vector<int> level_;

  double log_probability(int node) const {
    return node == kTreeRoot ? 0.0 : nodes_[static_cast<std::size_t>(node)].log_probability;
  }
};

}  // namespace specquant::decode
