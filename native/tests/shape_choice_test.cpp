// The choice of a shape by round, in simulated cells: no clock, no model.
#include "decode/shape_choice.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "decode/random.h"
#include "tests/shapes.h"

namespace specquant::decode {
namespace {

using test::chain;
using test::kTree;

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

// Tokens a second of the best of plain decoding and the fixed shapes.
double best_fixed(const Cell& cell, int sequences, const std::vector<Shape>& shapes, int tokens,
                  int from = 0) {
  double best = Simulation(cell, sequences, 1).fixed({}, tokens, from);
  for (const Shape& shape : shapes) {
    best = std::max(best, Simulation(cell, sequences, 1).fixed(shape, tokens, from));
  }
  return best;
}

// Tokens a second of choosers among the candidates, over the time of all seeds.
double chosen(const Cell& cell, int sequences, const std::vector<Shape>& candidates, int tokens,
              int from = 0) {
  double time = 0.0;  // a token
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ShapeChooser chooser(candidates);
    time += 1.0 / Simulation(cell, sequences, seed).chosen(chooser, tokens, from) / kSeeds;
  }
  return 1.0 / time;
}

TEST_CASE("the choice comes within 5 % of the best fixed shape or plain decoding") {
  for (const auto& forward : kForwards) {
    for (const double step : {0.03, 0.25}) {
      for (const double chance : {0.05, 0.5, 0.8}) {
        for (const auto& candidates : {kChains, kMixed}) {
          for (const int sequences : {1, 8}) {
            const Cell cell{.forward = forward, .step = step, .chance = [=](int, int rank) {
                              return of_rank(chance, rank);
                            }};
            CAPTURE(forward(9));
            CAPTURE(step);
            CAPTURE(chance);
            CAPTURE(candidates.size());
            CAPTURE(sequences);
            CHECK(chosen(cell, sequences, candidates, 2000, 500) >
                  0.95 * best_fixed(cell, sequences, candidates, kLong));
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
          CAPTURE(forward(9));
          CAPTURE(step);
          CAPTURE(candidates.size());
          CAPTURE(tokens);
          CHECK(chosen(cell, 1, candidates, tokens) > 0.95 * plain);
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
      CAPTURE(gets_easy);
      CAPTURE(forward(9));
      CHECK(chosen(cell, 1, kChains, 4000, 2000) > 0.93 * best_fixed(cell, 1, kChains, 3000, 1000));
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
