// What a shape commits, foreseen from the rounds of any shape.
#include "decode/shape_yield.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "decode/random.h"
#include "tests/shapes.h"

namespace specquant::decode {
namespace {

using test::chain;
using test::kTree;

PathOutcome outcome_of(std::vector<int> ranks, int refused, int longest) {
  return {.room = 100, .longest = longest, .ranks = std::move(ranks), .refused = refused};
}

TEST_CASE("a path is described by ranks among siblings and the children that were refused") {
  Proposal proposal;  // rows 1, 2, 3 below 0; 4 and 5 below 2; 6 below 5
  for (const int parent : {0, 0, 0, 2, 2, 5}) proposal.add(7, parent);
  PathOutcome outcome;
  describe_path(proposal, {.path = {2, 5}, .refused = true, .next = 0}, 9, outcome);
  CHECK(outcome.ranks == std::vector{1, 1});
  CHECK(outcome.refused == 1);
  CHECK(outcome.longest == 3);
  CHECK(outcome.room == 9);
  describe_path(proposal, {.path = {}, .refused = true, .next = 0}, 9, outcome);
  CHECK(outcome.ranks.empty());
  CHECK(outcome.refused == 3);
  describe_path({}, {}, 0, outcome);
  CHECK(outcome.longest == 0);
  CHECK(outcome.refused == 0);
}

// Accepted lengths of a chain whose tokens are accepted with these chances, by position.
class Chains {
 public:
  explicit Chains(std::vector<double> chances) : chances_(std::move(chances)) {}
  PathOutcome draw(int gamma) {
    std::vector<int> ranks;
    while (static_cast<int>(ranks.size()) < gamma) {
      if (uniform(5, {0, draws_++}, Purpose::accept) >= chances_[ranks.size()]) break;
      ranks.push_back(0);
    }
    const bool all = static_cast<int>(ranks.size()) == gamma;
    return outcome_of(std::move(ranks), all ? 0 : 1, gamma);
  }

 private:
  std::vector<double> chances_;
  int draws_ = 0;
};

TEST_CASE("one chain's rounds tell what every other chain would commit") {
  ShapeYield yield({chain(1), chain(4), chain(8)});
  Chains text({0.9, 0.8, 0.6, 0.6});
  double one = 0.0;
  double four = 0.0;
  for (int i = 0; i < 4000; ++i) {
    yield.add(1, text.draw(4));
    if (i < 2000) continue;
    one += yield.tokens(0, 0.0) / 2000;
    four += yield.tokens(1, 0.0) / 2000;
  }
  CHECK(one == doctest::Approx(1.9).epsilon(0.02));
  CHECK(four == doctest::Approx(1.0 + 0.9 + 0.72 + 0.432 + 0.2592).epsilon(0.02));
  CHECK(yield.tokens(2, 0.0) > yield.tokens(1, 0.0));
  CHECK(yield.tokens(1, 1.0) > yield.tokens(1, 0.0));
  CHECK(yield.drafted(1) == doctest::Approx(4.0).epsilon(0.02));
}

TEST_CASE("positions that are not reached any more follow the others when the text changes") {
  ShapeYield yield({chain(2), chain(6)});
  Chains hard(std::vector<double>(6, 0.3));
  for (int i = 0; i < 500; ++i) yield.add(1, hard.draw(6));
  CHECK(yield.tokens(1, 0.0) < 1.8);
  Chains easy(std::vector<double>(6, 0.9));
  for (int i = 0; i < 150; ++i) yield.add(0, easy.draw(2));
  CHECK(yield.tokens(1, 0.0) > 4.0);  // 1 + 0.9 + ... + 0.9^6 = 5.2
}

TEST_CASE("a drafter that often proposes nothing costs few rows and commits few tokens") {
  ShapeYield yield({chain(4)});
  for (int i = 0; i < 400; ++i) {
    yield.add(0, i % 4 == 0 ? outcome_of({0, 0}, 1, 4) : outcome_of({}, 0, 0));
  }
  CHECK(yield.drafted(0) == doctest::Approx(1.0).epsilon(0.1));
  CHECK(yield.tokens(0, 0.0) == doctest::Approx(1.5).epsilon(0.1));
}

TEST_CASE("a lack of room near a request's end is no refusal") {
  ShapeYield yield({chain(4)});
  for (int i = 0; i < 400; ++i) {
    PathOutcome outcome = outcome_of({0}, 0, 1);
    outcome.room = i % 2 == 0 ? 1 : 0;
    yield.add(0, outcome);
    yield.add(0, outcome_of({0, 0, 0, 0}, 0, 4));
  }
  CHECK(yield.tokens(0, 0.0) > 4.5);
  CHECK(yield.drafted(0) > 3.9);
}

TEST_CASE("a tree is foreseen from the ranks of right tokens, and then known by itself") {
  ShapeYield yield({chain(2), kTree});
  for (int i = 0; i < 300; ++i) yield.add(0, outcome_of({}, 1, 2));
  const double beside_a_bad_chain = yield.tokens(1, 0.0);
  for (int i = 0; i < 300; ++i) yield.add(0, outcome_of({0, 0}, 0, 2));
  CHECK(yield.tokens(1, 0.0) > beside_a_bad_chain + 0.5);
  for (int i = 0; i < 300; ++i) yield.add(1, outcome_of({2, 1}, 4, 3));
  CHECK(yield.tokens(1, 0.0) == doctest::Approx(3.0).epsilon(0.05));
  CHECK(yield.tokens(0, 0.0) > 2.5);  // the chain's own past
}

}  // namespace
}  // namespace specquant::decode
