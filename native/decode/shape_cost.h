// What a round of a shape costs in time, learned from the rounds that were decoded.
#pragma once

#include <map>
#include <vector>

#include "decode/proposal.h"

namespace specquant::decode {

// Seconds by a size, followed over time. Between known sizes it is linear; beyond the last it goes
// on as between the last two.
class TimeCurve {
 public:
  void set(int size, double seconds) { points_[size] = seconds; }
  // Moves towards what was measured: half of the way at every size, so that those which are not
  // measured now follow what slows down all of them and do not look cheap; the rest at this one.
  void follow(int size, double seconds);
  bool empty() const { return points_.empty(); }
  double at(double size) const;

 private:
  std::map<int, double> points_;
};

// One round of the whole batch, as it was measured.
struct RoundTimes {
  int sequences = 0;
  int rows = 0;  // of the target's forward
  double draft_s = 0.0, verify_s = 0.0, other_s = 0.0;
};

class ShapeCost {
 public:
  explicit ShapeCost(std::vector<Shape> shapes);

  // A forward of the target over so many rows in all.
  void calibrate(int rows, double seconds) { target_.set(rows, seconds); }

  // `behind`: tokens that were committed without the drafter since it drafted last.
  // `complete`: the drafting went as deep as the shape.
  void add_drafted(int shape, const RoundTimes& times, int behind, bool complete);
  void add_plain(const RoundTimes& times);

  double plain(int sequences) const;
  // Of a round that drafts `drafted` tokens a sequence, catching up on `behind` tokens first.
  double drafted(int shape, int sequences, double drafted, int behind) const;

 private:
  std::vector<Shape> shapes_;
  TimeCurve target_;               // by rows
  std::vector<TimeCurve> drafts_;  // by shape, by sequences
  double other_ = 0.0;             // of one sequence
  double catch_up_ = 0.0;          // of one token
  bool other_known_ = false;

  double drafting(int shape, int sequences) const;
  void add_target(const RoundTimes& times);
};

}  // namespace specquant::decode
