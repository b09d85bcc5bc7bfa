// Shape invariance of trees: a node equals its root path decoded plainly, also where the tree grows
// over several forwards.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "tests/cpu_rows.h"
#include "tests/model_rows.h"

namespace specquant::cpu {
namespace {

using namespace reference;
using test::path_of;
using test::random_tokens;
using test::random_tree;
using test::Row;
using test::Tokens;
using test::Tree;

TEST_CASE("a node of a random tree equals its root path decoded plainly") {
  const RandomModel random(reference::small_spec());
  const auto model = build(random, 2);
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 source(seed);
    const Precision precision = kPrecisions[seed % std::size(kPrecisions)];
    const Tokens prompt = random_tokens(1 + static_cast<int>(source() % 40), source);
    const int base = static_cast<int>(prompt.size());
    const int nodes = seed == 0 ? 64 : 2 + static_cast<int>(source() % 63);
    const Tree tree = random_tree(nodes, source);
    forward(*model, precision, {{0, 0, prompt, {}}});
    const std::vector<Row> together =
        forward(*model, precision, {{0, base, tree.tokens, tree.ancestors}});
    for (int node = 0; node < nodes; ++node) {
      CAPTURE(node);
      Tokens alone = prompt;
      for (const int step : path_of(tree.ancestors[node])) alone.push_back(tree.tokens[step]);
      forward(*model, precision, {{1, 0, std::span(alone).first(alone.size() - 1), {}}});
      const Rows last{1, static_cast<int>(alone.size()) - 1, std::span(alone).last(1), {}};
      CHECK(forward(*model, precision, {last})[0] == together[node]);
    }
    // Keeping the path of the last node leaves the cache as plain decoding would.
    const std::vector<int> path = path_of(tree.ancestors.back());
    model->compact(0, base, path);
    const int length = base + static_cast<int>(path.size());
    CHECK(cached(*model, 0, length) == cached(*model, 1, length));
  }
}

// The tree's rows in levels: a level's rows have their parents in earlier ones. Bits follow the new
// order.
Tree by_levels(const Tree& tree, std::vector<int>& level_ends) {
  const auto nodes = static_cast<int>(tree.tokens.size());
  std::vector<int> order(static_cast<std::size_t>(nodes)), place(order.size());
  for (int i = 0; i < nodes; ++i) order[i] = i;
  const auto depth = [&](int node) { return std::popcount(tree.ancestors[node]); };
  std::ranges::stable_sort(order, {}, depth);
  for (int i = 0; i < nodes; ++i) place[order[i]] = i;
  Tree sorted;
  for (int i = 0; i < nodes; ++i) {
    uint64_t word = 0;
    for (const int step : path_of(tree.ancestors[order[i]])) word |= uint64_t{1} << place[step];
    sorted.tokens.push_back(tree.tokens[order[i]]);
    sorted.ancestors.push_back(word);
    if (i + 1 == nodes || depth(order[i + 1]) != depth(order[i])) level_ends.push_back(i + 1);
  }
  return sorted;
}

TEST_CASE("a tree grown level by level in the cache equals the same tree in one forward") {
  const RandomModel random(reference::small_spec());
  const auto model = build(random, 2);
  for (unsigned seed = 0; seed < 15; ++seed) {
    CAPTURE(seed);
    std::mt19937 source(200 + seed);
    const Precision precision = kPrecisions[seed % std::size(kPrecisions)];
    const Tokens prompt = random_tokens(1 + static_cast<int>(source() % 40), source);
    const int base = static_cast<int>(prompt.size());
    const int nodes = seed < 5 ? 64 : 2 + static_cast<int>(source() % 63);
    std::vector<int> ends;
    const Tree tree = by_levels(random_tree(nodes, source), ends);
    for (const int slot : {0, 1}) forward(*model, precision, {{slot, 0, prompt, {}}});
    const std::vector<Row> together =
        forward(*model, precision, {{0, base, tree.tokens, tree.ancestors}});
    std::vector<Row> grown;
    int begin = 0;
    for (const int end : ends) {
      const auto part = [&](const auto& all) {
        return std::span(all).subspan(static_cast<std::size_t>(begin),
                                      static_cast<std::size_t>(end - begin));
      };
      const Rows rows{1, base + begin, part(tree.tokens), part(tree.ancestors), base};
      // Every second level shares its forward with another sequence.
      std::vector<Rows> batch{rows};
      if (grown.size() % 2 == 1) batch.push_back({2, 0, prompt, {}});
      std::vector<Row> level = forward(*model, precision, batch);
      grown.insert(grown.end(), level.begin(), level.begin() + (end - begin));
      begin = end;
    }
    CHECK(grown == together);
    CHECK(cached(*model, 1, base + nodes) == cached(*model, 0, base + nodes));
  }
}

}  // namespace
}  // namespace specquant::cpu
