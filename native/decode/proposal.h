// What a drafter proposes in a round, as a small tree below the last committed token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace specquant::decode {

constexpr int kMaxDrafted = 63;  // with the last committed token, a round has at most 64 rows

// Row 0 is the last committed token, row i + 1 is tokens[i]. Parents come before children.
struct Proposal {
  std::vector<int32_t> tokens;
  std::vector<int> parents;  // row of each token's parent
  // The drafter's logits after a row that has children, where it was asked for them and has any.
  // Buffers are kept between rounds; a row counts only where has_logits(row).
  std::vector<std::vector<float>> logits;
  int logit_rows = 0;
  std::span<const int32_t> vocabulary;  // token of each entry of a logit row; empty: entry i's is i
  bool drawn = false;  // each token was drawn at random from its parent's logits; otherwise the
                       // drafter could have proposed nothing else

  void clear() {
    tokens.clear();
    parents.clear();
    logit_rows = 0;
    vocabulary = {};
    drawn = false;
  }
  void add(int32_t token, int parent) {
    tokens.push_back(token);
    parents.push_back(parent);
  }
  // Logits of the next row in order: 0, then 1 ...
  void add_logits(std::span<const float> row) {
    if (static_cast<int>(logits.size()) == logit_rows) logits.emplace_back();
    logits[static_cast<std::size_t>(logit_rows++)].assign(row.begin(), row.end());
  }
  bool has_logits(int row) const { return row < logit_rows; }
  int rows() const { return static_cast<int>(tokens.size()) + 1; }
  bool is_chain() const {
    for (std::size_t i = 0; i < parents.size(); ++i) {
      if (parents[i] != static_cast<int>(i)) return false;
    }
    return true;
  }
};

// How many tokens a round proposes and how they hang together. A chain has one candidate a level.
struct Shape {
  int depth = 0;  // longest path
  int top_k = 1;  // children of a row, at most
  int nodes = 0;  // drafted tokens, at most
};

}  // namespace specquant::decode
