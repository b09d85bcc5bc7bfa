// The choice of a shape by round, in simulated cells: no clock, no model.
#include "decode/shape_choice.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "decode/random.h"

namespace specquant::decode {
namespace {

constexpr Shape chain(int gamma) { return {.depth = gamma, .top_k = 1, .nodes = gamma}; }
constexpr Shape kTree{.depth = 3, .top_k = 4, .nodes = 12};

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

TEST_CASE("times are linear between sizes and go on beyond the last") {
  TimeCurve curve;
  curve.set(1, 2.0);
  CHECK(curve.at(50) == 2.0);
  curve.set(5, 4.0);
  CHECK(curve.at(0) == 2.0);
  CHECK(curve.at(1) == 2.0);
  CHECK(curve.at(3) == 3.0);
  CHECK(curve.at(2.5) == 2.75);
  CHECK(curve.at(9) == 6.0);
  for (int i = 0; i < 100; ++i) curve.follow(3, 3.9);
  CHECK(curve.at(3) == doctest::Approx(3.9).epsilon(0.01));
  CHECK(curve.at(1) == doctest::Approx(2.0 * std::pow(1.3, 0.5)).epsilon(0.02));
  curve.follow(3, 3900.0);  // a single long one moves little
  CHECK(curve.at(3) < 3.9 * 1.1);
  curve.follow(3, 0.0);
  CHECK(curve.at(3) > 3.0);
}

TEST_CASE("a shape that was not tried costs as its depth says, and catching up is extra") {
  ShapeCost cost({chain(2), chain(6)});
  for (int rows = 1; rows <= 8; ++rows) cost.calibrate(rows, 1.0);
  for (int i = 0; i < 60; ++i) {
    cost.add_drafted(
        0, {.sequences = 1, .rows = 3, .draft_s = 0.4, .verify_s = 1.0, .other_s = 0.1}, 0, true);
  }
  CHECK(cost.plain(1) == doctest::Approx(1.1));
  CHECK(cost.drafted(0, 1, 2.0, 0) == doctest::Approx(1.5));
  CHECK(cost.drafted(1, 1, 6.0, 0) == doctest::Approx(2.3));
  for (int i = 0; i < 30; ++i) {
    cost.add_drafted(
        0, {.sequences = 1, .rows = 3, .draft_s = 0.9, .verify_s = 1.0, .other_s = 0.1}, 10, true);
  }
  CHECK(cost.drafted(0, 1, 2.0, 0) == doctest::Approx(1.5));
  CHECK(cost.drafted(0, 1, 2.0, 20) == doctest::Approx(2.5));
}

// A simulated cell: time of a forward by rows, of a draft step as a part of a plain round, and the
// chance that the token of a rank is right, given that no sibling before was, by output position.
struct Cell {
  std::function<double(int)> forward;
  double step = 0.1;
  std::function<double(int, int)> chance;
};

double of_rank(double chance, int rank) { return rank == 0 ? chance : 0.5 * chance / rank; }

class Simulation {
 public:
  Simulation(const Cell& cell, int sequences, uint64_t seed)
      : cell_(cell), sequences_(sequences), seed_(seed) {}

  // Tokens a second of a fixed shape.
  double fixed(const Shape& shape, int tokens, int from = 0) {
    start(from);
    while (position_ < from + tokens) round(shape);
    return committed_ / time_;
  }

  // Tokens a second of the chooser's rounds from position `from` on.
  double chosen(ShapeChooser& chooser, int tokens, int from = 0) {
    start(0);
    for (const int rows : chooser.calibration_rows()) {
      chooser.calibrate(rows * sequences_, cell_.forward(rows * sequences_) * noise());
    }
    double time_before = 0.0;
    double committed_before = 0.0;
    int behind = 0;
    while (position_ < tokens) {
      if (position_ < from) {
        time_before = time_;
        committed_before = committed_;
      }
      const int choice = chooser.choose(sequences_, behind);
      choices.push_back(choice);
      const int committed = round(chooser.shape(choice));
      chooser.observe(times_, committed,
                      choice == kPlain ? std::span<const PathOutcome>() : outcomes_);
      behind = choice == kPlain ? behind + committed : 0;
    }
    return (committed_ - committed_before) / (time_ - time_before);
  }

  std::vector<int> choices;

 private:
  const Cell& cell_;
  int sequences_;
  uint64_t seed_;
  int draws_ = 0, position_ = 0, from_ = 0;
  double time_ = 0.0, committed_ = 0.0;
  RoundTimes times_;
  std::vector<PathOutcome> outcomes_;

  void start(int from) {
    position_ = from_ = from;
    time_ = committed_ = 0.0;
  }
  double draw() { return uniform(seed_, {0, draws_++}, Purpose::accept); }
  double noise() {  // about 5 %
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += draw();
    return std::exp(0.05 * sum);
  }
  PathOutcome path(const Shape& shape) {
    const int children = std::clamp(shape.nodes / shape.depth, 1, shape.top_k);
    PathOutcome outcome{.room = 100, .longest = shape.depth, .ranks = {}, .refused = 0};
    for (int depth = 0; depth < shape.depth; ++depth) {
      int rank = 0;
      while (rank < children && draw() >= cell_.chance(position_ + depth, rank)) ++rank;
      if (rank == children) {
        outcome.refused = children;
        break;
      }
      outcome.ranks.push_back(rank);
    }
    return outcome;
  }
  int round(const Shape& shape) {
    times_ = {.sequences = sequences_,
              .rows = sequences_ * (1 + shape.nodes),
              .draft_s = shape.depth * cell_.step * cell_.forward(sequences_) * noise(),
              .verify_s = cell_.forward(sequences_ * (1 + shape.nodes)) * noise(),
              .other_s = 0.01 * cell_.forward(1)};
    outcomes_.clear();
    int committed = sequences_;
    for (int i = 0; i < sequences_ && shape.nodes > 0; ++i) {
      outcomes_.push_back(path(shape));
      committed += static_cast<int>(outcomes_.back().ranks.size());
    }
    time_ += times_.draft_s + times_.verify_s + times_.other_s;
    committed_ += committed;
    position_ = from_ + static_cast<int>(committed_ / sequences_);
    return committed;
  }
};

const std::vector<Shape> kChains{chain(1), chain(2), chain(3), chain(4), chain(6), chain(8)};
const std::vector<Shape> kMixed{chain(2), chain(4), kTree, {.depth = 5, .top_k = 4, .nodes = 30}};

// Forwards that read weights up to 16 rows, that compute from the first row on, and in between.
const std::vector<std::function<double(int)>> kForwards{
    [](int rows) { return std::max(1.0, rows / 16.0) + 0.01 * rows; },
    [](int rows) { return 1.0 + 0.25 * (rows - 1); },
    [](int rows) { return 1.0 + 0.05 * (rows - 1); }};

constexpr int kSeeds = 8;
constexpr int kLong = 10000;  // tokens, so that a fixed shape is known to about 1 %

TEST_CASE("the choice comes within 5 % of the best fixed shape or plain decoding") {
  for (const auto& forward : kForwards) {
    for (const double step : {0.03, 0.25}) {
      for (const double chance : {0.05, 0.5, 0.8}) {
        for (const auto& candidates : {kChains, kMixed}) {
          for (const int sequences : {1, 8}) {
            const Cell cell{.forward = forward, .step = step, .chance = [=](int, int rank) {
                              return of_rank(chance, rank);
                            }};
            double best = Simulation(cell, sequences, 1).fixed({}, kLong);
            for (const Shape& shape : candidates) {
              best = std::max(best, Simulation(cell, sequences, 1).fixed(shape, kLong));
            }
            double time = 0.0;  // a token
            for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
              ShapeChooser chooser(candidates);
              time += 1.0 / Simulation(cell, sequences, seed).chosen(chooser, 2000, 500) / kSeeds;
            }
            CAPTURE(forward(9));
            CAPTURE(step);
            CAPTURE(chance);
            CAPTURE(candidates.size());
            CAPTURE(sequences);
            CHECK(1.0 / time > 0.95 * best);
          }
        }
      }
    }
  }
}

TEST_CASE("unpredictable text never costs more than 5 % of plain decoding, however short") {
  for (const auto& forward : kForwards) {
    for (const double step : {0.0, 0.1, 0.5}) {
      for (const auto& candidates : {kChains, kMixed, std::vector<Shape>{chain(8)}}) {
        for (const int tokens : {128, 1000}) {
          const Cell cell{.forward = forward, .step = step, .chance = [](int, int rank) {
                            return of_rank(0.02, rank);
                          }};
          const double plain = Simulation(cell, 1, 1).fixed({}, kLong);
          double time = 0.0;
          for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
            ShapeChooser chooser(candidates);
            time += 1.0 / Simulation(cell, 1, seed).chosen(chooser, tokens) / kSeeds;
          }
          CAPTURE(forward(9));
          CAPTURE(step);
          CAPTURE(candidates.size());
          CAPTURE(tokens);
          CHECK(1.0 / time > 0.95 * plain);
        }
      }
    }
  }
}

TEST_CASE("on unpredictable text drafting is switched off and looked at ever more rarely") {
  const Cell cell{.forward = kForwards[2], .step = 0.2, .chance = [](int, int) { return 0.02; }};
  ShapeChooser chooser(kChains);
  Simulation simulation(cell, 1, 3);
  simulation.chosen(chooser, 4000);
  const auto drafted = [&](std::size_t from, std::size_t to) {
    return std::count_if(simulation.choices.begin() + static_cast<std::ptrdiff_t>(from),
                         simulation.choices.begin() + static_cast<std::ptrdiff_t>(to),
                         [](int choice) { return choice != kPlain; });
  };
  const std::size_t half = simulation.choices.size() / 2;
  CHECK(drafted(0, half) > 2 * drafted(half, simulation.choices.size()));
  CHECK(drafted(half, simulation.choices.size()) > 0);
}

TEST_CASE("the choice follows a change of the text in both directions") {
  for (const bool gets_easy : {true, false}) {
    for (const auto& forward : kForwards) {
      const Cell cell{.forward = forward, .step = 0.1, .chance = [=](int position, int rank) {
                        return of_rank((position >= 1000) == gets_easy ? 0.85 : 0.05, rank);
                      }};
      double best = Simulation(cell, 1, 1).fixed({}, 3000, 1000);
      for (const Shape& shape : kChains) {
        best = std::max(best, Simulation(cell, 1, 1).fixed(shape, 3000, 1000));
      }
      double time = 0.0;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        ShapeChooser chooser(kChains);
        time += 1.0 / Simulation(cell, 1, seed).chosen(chooser, 4000, 2000) / kSeeds;
      }
      CAPTURE(gets_easy);
      CAPTURE(forward(9));
      CHECK(1.0 / time > 0.93 * best);
    }
  }
}

TEST_CASE("the history holds every switch, and what was predicted is what was measured") {
  const Cell cell{.forward = kForwards[2], .step = 0.1, .chance = [](int, int rank) {
                    return of_rank(0.8, rank);
                  }};
  ShapeChooser chooser(kMixed);
  Simulation simulation(cell, 2, 1);
  const double speed = simulation.chosen(chooser, 3000);
  const ShapeHistory& history = chooser.history();
  int choice = kPlain;
  std::size_t next = 0;
  for (std::size_t round = 0; round < simulation.choices.size(); ++round) {
    if (simulation.choices[round] == choice) continue;
    REQUIRE(next < history.switches.size());
    CHECK(history.switches[next].round == static_cast<int>(round));
    CHECK(history.switches[next].from == choice);
    choice = simulation.choices[round];
    CHECK(history.switches[next++].to == choice);
  }
  CHECK(next == history.switches.size());
  CHECK(history.predicted_speedup == doctest::Approx(history.measured_speedup).epsilon(0.05));
  const double plain = Simulation(cell, 2, 1).fixed({}, kLong);
  CHECK(history.measured_speedup == doctest::Approx(speed / plain).epsilon(0.05));
}

TEST_CASE("few sizes are timed before the first round, the smallest and largest among them") {
  CHECK(ShapeChooser({chain(3), kTree}).calibration_rows() == std::vector{1, 4, 13});
  std::vector<Shape> many;
  for (int gamma = 1; gamma <= 63; ++gamma) many.push_back(chain(gamma));
  const std::vector<int> rows = ShapeChooser(many).calibration_rows();
  CHECK(rows.size() == 6);
  CHECK(rows.front() == 1);
  CHECK(rows.back() == 64);
}

}  // namespace
}  // namespace specquant::decode
