// Trees of drafted tokens against their definition, without pruning.
#include "decode/draft_tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "tests/fake_model.h"

namespace specquant::decode {
namespace {

// What a drafter says after a path, by the path's hash: few distinct values, so that ties occur.
struct Said {
  std::vector<TopEntry> best;
  float log_sum = 0.0F;

  Said(uint64_t path, int vocabulary) {
    double sum = 0.0;
    for (int32_t token = 0; token < vocabulary; ++token) {
      const uint64_t hash = test::mix(path, static_cast<uint64_t>(token));
      best.push_back({token, static_cast<float>(hash % 4)});
      sum += std::exp(static_cast<double>(best.back().logit));
    }
    log_sum = static_cast<float>(std::log(sum));
    std::ranges::stable_sort(best, std::greater<>(), &TopEntry::logit);
  }
};

struct Node {
  int32_t token = 0;
  int parent = kTreeRoot;
  uint64_t path = 0;
  double value = 0.0;
};

// EAGLE-2 word by word: expand the top_k best of each level, rank all nodes, take the best.
std::vector<Node> defined_tree(const Shape& shape, uint64_t seed, int vocabulary,
                               std::vector<int>& kept) {
  std::vector<Node> nodes;
  std::vector<int> level{kTreeRoot};
  const auto better = [&](int a, int b) {
    const double of_a = nodes[static_cast<std::size_t>(a)].value;
    const double of_b = nodes[static_cast<std::size_t>(b)].value;
    return of_a != of_b ? of_a > of_b : a < b;
  };
  for (int depth = 0; depth < shape.depth; ++depth) {
    const auto first = static_cast<int>(nodes.size());
    for (const int parent : level) {
      const Node above =
          parent == kTreeRoot ? Node{.path = seed} : nodes[static_cast<std::size_t>(parent)];
      const Said said(above.path, vocabulary);
      for (int k = 0; k < std::min(shape.top_k, vocabulary); ++k) {
        const TopEntry& entry = said.best[static_cast<std::size_t>(k)];
        nodes.push_back({entry.token, parent,
                         test::mix(above.path, static_cast<uint64_t>(entry.token)),
                         above.value + std::min(0.0, static_cast<double>(entry.logit) -
                                                         static_cast<double>(said.log_sum))});
      }
    }
    level.resize(nodes.size() - static_cast<std::size_t>(first));
    std::iota(level.begin(), level.end(), first);
    std::ranges::sort(level, better);
    if (static_cast<int>(level.size()) > shape.top_k) {
      level.resize(static_cast<std::size_t>(shape.top_k));
    }
  }
  kept.resize(nodes.size());
  std::iota(kept.begin(), kept.end(), 0);
  std::ranges::sort(kept, better);
  kept.resize(std::min(kept.size(), static_cast<std::size_t>(shape.nodes)));
  std::ranges::sort(kept);
  return nodes;
}

// The hash of the path that ends in each row of a proposal.
std::vector<uint64_t> paths_of(const Proposal& proposal, uint64_t seed) {
  std::vector<uint64_t> paths{seed};
  for (std::size_t i = 0; i < proposal.tokens.size(); ++i) {
    const auto parent = static_cast<std::size_t>(proposal.parents[i]);
    paths.push_back(test::mix(paths[parent], static_cast<uint64_t>(proposal.tokens[i])));
  }
  return {paths.begin() + 1, paths.end()};
}

TEST_CASE(
    "a tree has the nodes that its definition gives, without computing those it cannot keep") {
  std::mt19937 random(4);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  int spared = 0;
  for (int trial = 0; trial < 500; ++trial) {
    Shape shape;
    shape.depth = 1 + below(5);
    shape.top_k = 1 + below(6);
    shape.nodes = shape.depth + below(kMaxDrafted + 1 - shape.depth);
    const int vocabulary = 2 + below(9);
    const uint64_t seed = random();
    CAPTURE(trial);

    DraftTree tree;
    tree.start(shape, shape.depth);
    std::vector<uint64_t> paths;  // by node
    std::vector<int> level{kTreeRoot};
    int expanded = 0;
    while (!level.empty()) {
      for (const int node : level) {
        const uint64_t path = node == kTreeRoot ? seed : paths[static_cast<std::size_t>(node)];
        const Said said(path, vocabulary);
        const int first = tree.size();
        tree.expand(node, said.best, said.log_sum);
        for (int child = first; child < tree.size(); ++child) {
          paths.push_back(test::mix(path, static_cast<uint64_t>(tree.token(child))));
        }
        ++expanded;
      }
      const auto next = tree.next_level();
      CHECK(static_cast<int>(next.size()) <= shape.top_k);
      level.assign(next.begin(), next.end());
    }
    Proposal proposal;
    tree.add_to(proposal);

    std::vector<int> kept;
    const std::vector<Node> nodes = defined_tree(shape, seed, vocabulary, kept);
    std::vector<uint64_t> expected;
    for (const int node : kept) expected.push_back(nodes[static_cast<std::size_t>(node)].path);
    CHECK(paths_of(proposal, seed) == expected);
    for (std::size_t i = 0; i < proposal.parents.size(); ++i) {
      CHECK(proposal.parents[i] <= static_cast<int>(i));
    }
    CHECK(tree.size() <= static_cast<int>(nodes.size()));
    if (tree.size() < static_cast<int>(nodes.size())) ++spared;
    CHECK(expanded <= 1 + (shape.depth - 1) * shape.top_k);
  }
  CHECK(spared > 10);
}

TEST_CASE("a tree ends where the sequence does, and one that is started again is empty") {
  const Shape shape{.depth = 4, .top_k = 2, .nodes = 20};
  const std::vector<TopEntry> best{{3, 1.0F}, {1, 0.0F}, {2, 0.0F}};
  DraftTree tree;
  tree.start(shape, 1);
  tree.expand(kTreeRoot, best, 2.0F);
  CHECK(tree.next_level().empty());
  Proposal proposal;
  tree.add_to(proposal);
  CHECK(proposal.tokens == std::vector<int32_t>{3, 1});
  CHECK(proposal.parents == std::vector{0, 0});
  tree.start(shape, 4);
  CHECK(tree.size() == 0);
  CHECK(tree.kept().empty());
}

}  // namespace
}  // namespace specquant::decode
