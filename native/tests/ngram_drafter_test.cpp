// Prompt lookup against a scan of the text.
#include "decode/ngram_drafter.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace specquant::decode {
namespace {

// The definition, without an index.
int scan(std::span<const int32_t> tokens, int min_ngram, int max_ngram) {
  const int size = static_cast<int>(tokens.size());
  for (int n = max_ngram; n >= min_ngram; --n) {
    for (int end = size - 1; end >= n; --end) {
      const auto earlier =
          tokens.subspan(static_cast<std::size_t>(end - n), static_cast<std::size_t>(n));
      if (n <= size && std::ranges::equal(earlier, tokens.last(static_cast<std::size_t>(n))))
        return end;
    }
  }
  return -1;
}

TEST_CASE("the n-gram index finds what a scan finds") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const int max_ngram = 1 + static_cast<int>(random() % 5);
    const int min_ngram = 1 + static_cast<int>(random() % static_cast<unsigned>(max_ngram));
    const auto vocabulary = 2 + random() % 6;
    NgramIndex index(min_ngram, max_ngram);
    std::vector<int32_t> tokens;
    for (int length = 0; length < 60; ++length) {
      for (auto more = 1 + random() % 3; more > 0; --more) {
        tokens.push_back(static_cast<int32_t>(random() % vocabulary));
      }
      REQUIRE(index.find(tokens) == scan(tokens, min_ngram, max_ngram));
      if (random() % 4 != 0) continue;
      // Some of the tokens were not accepted after all.
      const std::size_t kept = tokens.size() - random() % (tokens.size() / 2 + 1);
      tokens.resize(kept);
      index.rewind(static_cast<int>(kept));
    }
  }
}

TEST_CASE("prompt lookup proposes what followed, and nothing where nothing is found") {
  NgramDrafter drafter(1, 3, 1);
  TopChoice top;
  const auto propose = [&](const std::vector<int32_t>& tokens, int depth) {
    std::vector<Proposal> proposals(1);
    const Draftable sequence{.request = 0, .slot = 0, .tokens = tokens, .depth = depth};
    drafter.begin(0, tokens, {});
    drafter.propose(
        std::span(&sequence, 1),
        {.shape = {.depth = 4, .top_k = 1, .nodes = 4}, .keep_logits = true, .choice = top},
        proposals);
    CHECK(proposals[0].is_chain());
    CHECK(proposals[0].logits_after(0).empty());
    return proposals[0].tokens;
  };
  CHECK(propose({1, 2, 3}, 9).empty());
  CHECK(propose({1, 2, 3, 4, 5, 6, 2, 3}, 9) == std::vector<int32_t>{4, 5, 6, 2});
  CHECK(propose({1, 2, 3, 4, 5, 6, 2, 3}, 2) == std::vector<int32_t>{4, 5});
  CHECK(propose({7, 7}, 9) == std::vector<int32_t>{7});
  CHECK(propose({1, 9, 2, 9, 3, 9}, 9) == std::vector<int32_t>{3, 9});  // the latest of equals
  CHECK(propose({1, 2, 3, 4, 5, 6, 2, 3}, 0).empty());
}

}  // namespace
}  // namespace specquant::decode
