#include "decode/draft_tree.h"

#include <algorithm>

namespace specquant::decode {

void DraftTree::start(const Shape& shape, int depth) {
  shape_ = shape;
  levels_left_ = depth;
  nodes_.clear();
  kept_.clear();
  closed_ = 0;
}

void DraftTree::expand(int node, std::span<const TopEntry> best, float log_sum) {
  const double above = log_probability(node);
  for (const TopEntry& entry :
       best.first(std::min(best.size(), static_cast<std::size_t>(shape_.top_k)))) {
    // Rounding must not make a child better than its parent.
    const double own =
        std::min(0.0, static_cast<double>(entry.logit) - static_cast<double>(log_sum));
    nodes_.push_back({.token = entry.token, .parent = node, .log_probability = above + own});
  }
}

std::span<const int> DraftTree::next_level() {
  --levels_left_;
  ordered_ = kept_;
  for (std::size_t node = closed_; node < nodes_.size(); ++node) {
    ordered_.push_back(static_cast<int>(node));
  }
  const std::size_t count = std::min(ordered_.size(), static_cast<std::size_t>(shape_.nodes));
  std::ranges::partial_sort(ordered_, ordered_.begin() + static_cast<std::ptrdiff_t>(count),
                            [this](int a, int b) {
                              const double of_a = log_probability(a);
                              const double of_b = log_probability(b);
                              return of_a != of_b ? of_a > of_b : a < b;
                            });
  ordered_.resize(count);
  level_.clear();
  for (const int node : ordered_) {
    if (levels_left_ == 0 || static_cast<int>(level_.size()) == shape_.top_k) break;
    if (static_cast<std::size_t>(node) >= closed_) level_.push_back(node);
  }
  closed_ = nodes_.size();
  kept_ = ordered_;
  std::ranges::sort(kept_);
  return level_;
}

void DraftTree::add_to(Proposal& proposal) const {
  for (const int node : kept_) {
    int row = 0;
    if (parent(node) != kTreeRoot) {
      const auto found = std::ranges::lower_bound(kept_, parent(node));
      row = static_cast<int>(found - kept_.begin()) + 1;
    }
    proposal.add(token(node), row);
  }
}

}  // namespace specquant::decode
