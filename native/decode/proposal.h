// What a drafter proposes in a round, as a small tree below the last committed token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace specquant::decode {

constexpr int kMaxDrafted = 63;  // with the last committed token, a round has at most 64 rows

// Row 0 is the last committed token, row i + 1 is tokens[i]. Parents come before children.
struct Proposal {
  std::vector<int32_t> tokens;
  std::vector<int> parents;             // row of each token's parent
  std::span<const int32_t> vocabulary;  // token of each entry of a logit row; empty: entry i's is i
  bool drawn = false;  // each token was drawn at random from its parent's logits; otherwise the
                       // drafter could have proposed nothing else

  void clear() {
    tokens.clear();
    parents.clear();
    logit_rows_.clear();
    vocabulary = {};
    drawn = false;
  }
  void add(int32_t token, int parent) {
    tokens.push_back(token);
    parents.push_back(parent);
  }
  // The drafter's logits after a row, where it was asked for them and has any.
  void set_logits(int row, std::span<const float> logits) {
    logit_rows_.push_back(row);
    if (logits_.size() < logit_rows_.size()) logits_.emplace_back();
    logits_[logit_rows_.size() - 1].assign(logits.begin(), logits.end());
  }
  // Empty where there are none.
  std::span<const float> logits_after(int row) const {
    const auto found = std::ranges::find(logit_rows_, row);
    if (found == logit_rows_.end()) return {};
    return logits_[static_cast<std::size_t>(found - logit_rows_.begin())];
  }
  // Between tokens and the entries of a logit row; the drafter must have the token.
  int32_t token_of(int32_t entry) const {
    return vocabulary.empty() ? entry : vocabulary[static_cast<std::size_t>(entry)];
  }
  int32_t entry_of(int32_t token) const {
    if (vocabulary.empty()) return token;
    return static_cast<int32_t>(std::ranges::lower_bound(vocabulary, token) - vocabulary.begin());
  }
  int rows() const { return static_cast<int>(tokens.size()) + 1; }
  bool is_chain() const {
    for (std::size_t i = 0; i < parents.size(); ++i) {
      if (parents[i] != static_cast<int>(i)) return false;
    }
    return true;
  }

 private:
  std::vector<int> logit_rows_;
  std::vector<std::vector<float>> logits_;  // in the order of logit_rows_; kept for their memory
};

// How many tokens a round proposes and how they hang together. A chain has one candidate a level.
struct Shape {
  int depth = 0;  // longest path
  int top_k = 1;  // children of a row, at most
  int nodes = 0;  // drafted tokens, at most

  bool is_chain() const { return top_k == 1; }
  // Entries that a round may write in a cache behind the last committed token: the drafted tokens
  // in the target's, the expanded nodes of a growing tree in the drafter's.
  int room() const { return is_chain() ? nodes : std::max(nodes, grown()); }
  // Nodes of a tree that the drafter expands below the root, at most.
  int grown() const { return (depth - 1) * std::min(top_k, nodes); }
};

}  // namespace specquant::decode
