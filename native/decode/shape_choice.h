// The choice of a shape for each round: among candidates and plain decoding, by what each is
// expected to commit and to cost. It reads no clock and draws no random number.
#pragma once

#include <span>
#include <vector>

#include "decode/shape_cost.h"
#include "decode/shape_yield.h"

namespace specquant::decode {

constexpr int kPlain = -1;  // the choice to draft nothing

struct ShapeSwitch {
  int round = 0;
  int from = kPlain, to = kPlain;  // candidates, or kPlain
  double predicted_speedup = 0.0;  // of `to`
};

// Speedups are over plain rounds, whose time is that of the run's own: measured before its first
// round and in its plain rounds. Both are means over the time of all rounds.
struct ShapeHistory {
  double predicted_speedup = 1.0, measured_speedup = 1.0;
  std::vector<ShapeSwitch> switches;
  double calibration_s = 0.0;  // outside the rounds
};

// Drafting that does not pay is bounded by an account in seconds: rounds that drafted are credited
// with the plain rounds that they replaced and debited with what they took. It starts with a few
// plain rounds and earns a small share of all time; a round drafts only if the account can bear it
// that nothing is accepted. So whatever the text, the run is hardly slower than plain decoding.
//
// A candidate that was not chosen lately is explored after 8, 16, 32 ... rounds, as long as it may
// turn out better than the choice that stands.
class ShapeChooser {
 public:
  explicit ShapeChooser(std::vector<Shape> candidates);

  // Numbers of rows a sequence whose forwards are to be timed before the first round.
  std::vector<int> calibration_rows() const;
  // A forward of so many rows in all. The first one comes before the first choice.
  void calibrate(int rows, double seconds);
  void add_calibration_time(double seconds) { history_.calibration_s += seconds; }

  // The candidate of the next round, or kPlain. `behind`: tokens of the sequences together that
  // were committed without the drafter since it drafted last.
  int choose(int sequences, int behind);
  const Shape& shape(int choice) const;

  // The round that was chosen last. `outcomes`: one a sequence; empty after a plain round.
  void observe(const RoundTimes& times, int committed, std::span<const PathOutcome> outcomes);

  const ShapeHistory& history() const { return history_; }

 private:
  std::vector<Shape> candidates_;
  ShapeYield yield_;
  ShapeCost cost_;
  ShapeHistory history_;

  int round_ = 0;
  int standing_ = kPlain;  // the choice apart from explorations
  int chosen_ = kPlain;
  int behind_ = 0;
  double expected_s_ = 0.0;  // of the chosen round
  double predicted_ = 1.0;
  bool exploring_ = false;
  struct Exploration {
    int wait;  // rounds, until it is due
    int since = 0;
  };
  std::vector<Exploration> explorations_;  // by candidate
  int trials_ = 0;                         // of the exploration that goes on
  Exploration plain_;                      // plain rounds among those that draft
  double account_ = 0.0;                   // seconds
  bool opened_ = false;
  double time_ = 0.0, predicted_time_ = 0.0, plain_time_ = 0.0;  // sums over rounds

  int count() const { return static_cast<int>(candidates_.size()); }
  double seconds(int choice, int sequences, int behind) const;
  double speedup(int choice, int sequences, double optimism) const;
  bool bearable(int choice, int sequences, int behind) const;
  int best(int sequences) const;
  int to_explore(int sequences, int behind) const;
  void settle(const RoundTimes& times, int committed);
  void end_round(const RoundTimes& times, int committed);
};

}  // namespace specquant::decode
