#include "decode/shape_choice.h"

#include <algorithm>
#include <set>

namespace specquant::decode {
namespace {

constexpr double kHysteresis = 1.03;  // by which another choice must be better than that standing
constexpr int kFirstWait = 8, kLongestWait = 512;      // rounds between explorations
constexpr int kTrials = 4;                             // sequences' rounds of an exploration
constexpr int kFirstPlain = 128, kLongestPlain = 512;  // rounds of drafting between plain ones
constexpr double kOpening = 3.0;                       // plain rounds on the account at the start
constexpr double kEarned = 0.02;                       // of all time
constexpr double kCapital = 10.0;  // plain rounds that the account holds beside the dearest round
constexpr double kSlowest = 2.0;   // times the expected seconds: more is not the shape's fault
constexpr std::size_t kCalibrated = 6;

}  // namespace

ShapeChooser::ShapeChooser(std::vector<Shape> candidates)
    : candidates_(candidates),
      yield_(candidates),
      cost_(candidates),
      explorations_(candidates.size(), {kFirstWait}),
      plain_{kFirstPlain} {}

std::vector<int> ShapeChooser::calibration_rows() const {
  std::set<int> sizes{1};
  for (const Shape& candidate : candidates_) sizes.insert(1 + candidate.nodes);
  const std::vector<int> all(sizes.begin(), sizes.end());
  if (all.size() <= kCalibrated) return all;
  std::vector<int> some;
  for (std::size_t i = 0; i < kCalibrated; ++i) {
    some.push_back(all[i * (all.size() - 1) / (kCalibrated - 1)]);
  }
  return some;
}

void ShapeChooser::calibrate(int rows, double seconds) { cost_.calibrate(rows, seconds); }

const Shape& ShapeChooser::shape(int choice) const {
  static constexpr Shape kNone;
  return choice == kPlain ? kNone : candidates_[static_cast<std::size_t>(choice)];
}

double ShapeChooser::seconds(int choice, int sequences, int behind) const {
  if (choice == kPlain) return cost_.plain(sequences);
  return cost_.drafted(choice, sequences, yield_.drafted(choice), behind);
}

double ShapeChooser::speedup(int choice, int sequences, double optimism) const {
  if (choice == kPlain) return 1.0;
  // What it takes to catch up is paid once and says nothing about the rounds that follow.
  return yield_.tokens(choice, optimism) * cost_.plain(sequences) / seconds(choice, sequences, 0);
}

bool ShapeChooser::bearable(int choice, int sequences, int behind) const {
  return choice == kPlain ||
         seconds(choice, sequences, behind) - cost_.plain(sequences) <= account_;
}

int ShapeChooser::best(int sequences) const {
  int found = standing_;
  double most = speedup(standing_, sequences, 0.0) * kHysteresis;
  for (int choice = kPlain; choice < count(); ++choice) {
    const double value = speedup(choice, sequences, 0.0);
    if (choice == standing_ || value <= most) continue;
    most = value;
    found = choice;
  }
  return found;
}

int ShapeChooser::to_explore(int sequences, int behind) const {
  int found = standing_;
  // Plain rounds tell nothing about the drafter, so that even what looks bad is looked at again.
  double most = standing_ == kPlain ? 0.0 : speedup(standing_, sequences, 0.0);
  for (int choice = 0; choice < count(); ++choice) {
    const Exploration& exploration = explorations_[static_cast<std::size_t>(choice)];
    if (choice == standing_ || exploration.since < exploration.wait) continue;
    if (!bearable(choice, sequences, behind)) continue;
    const double value = speedup(choice, sequences, 1.0);
    if (value <= most) continue;
    most = value;
    found = choice;
  }
  return found;
}

int ShapeChooser::choose(int sequences, int behind) {
  if (!opened_) account_ = kOpening * cost_.plain(sequences);
  opened_ = true;
  standing_ = best(sequences);
  behind_ = behind;
  int choice = standing_;
  exploring_ = false;
  if (standing_ != kPlain && plain_.since >= plain_.wait) {
    choice = kPlain;
    plain_.wait = std::min(2 * plain_.wait, kLongestPlain);
  } else {
    choice = to_explore(sequences, behind);
    exploring_ = choice != standing_;
  }
  if (!bearable(choice, sequences, behind)) {
    choice = kPlain;
    for (int other = 0; other < count(); ++other) {
      if (bearable(other, sequences, behind) &&
          speedup(other, sequences, 0.0) > speedup(choice, sequences, 0.0)) {
        choice = other;
      }
    }
  }
  predicted_ = speedup(choice, sequences, 0.0);
  expected_s_ = seconds(choice, sequences, behind);
  if (choice != chosen_) {
    history_.switches.push_back(
        {.round = round_, .from = chosen_, .to = choice, .predicted_speedup = predicted_});
  }
  chosen_ = choice;
  return choice;
}

void ShapeChooser::observe(const RoundTimes& times, int committed,
                           std::span<const PathOutcome> outcomes) {
  if (chosen_ == kPlain) {
    cost_.add_plain(times);
    yield_.pass();
    plain_.since = 0;
  } else {
    bool complete = false;
    for (const PathOutcome& outcome : outcomes) {
      yield_.add(chosen_, outcome);
      complete = complete || outcome.room >= shape(chosen_).depth;
    }
    cost_.add_drafted(chosen_, times, behind_, complete);
    ++plain_.since;
  }
  settle(times, committed);
  end_round(times, committed);
}

// Sets the waits for the explorations to come.
void ShapeChooser::end_round(const RoundTimes& times, int committed) {
  ++round_;
  for (Exploration& exploration : explorations_) ++exploration.since;
  if (chosen_ == kPlain) return;
  Exploration& chosen = explorations_[static_cast<std::size_t>(chosen_)];
  if (!exploring_) {
    chosen = {kFirstWait};
    return;
  }
  // What pays better than the choice that stands is looked at on and on.
  const double replaced = committed * cost_.plain(times.sequences) / times.sequences;
  if (replaced > expected_s_ * speedup(standing_, times.sequences, 0.0)) return;
  trials_ += times.sequences;
  if (trials_ < kTrials) return;
  trials_ = 0;
  // Beside plain rounds one candidate tells about the drafter, and so about all of them.
  for (Exploration& exploration : explorations_) {
    if (standing_ == kPlain || &exploration == &chosen) {
      exploration = {std::min(2 * exploration.wait, kLongestWait)};
    }
  }
}

void ShapeChooser::settle(const RoundTimes& times, int committed) {
  const double duration = times.draft_s + times.verify_s + times.other_s;
  const double plain = cost_.plain(times.sequences);
  const double replaced = plain * committed / times.sequences;
  const double counted = std::min(duration, kSlowest * expected_s_);
  if (chosen_ != kPlain) account_ += replaced - counted;
  double dearest = 0.0;
  for (int choice = 0; choice < count(); ++choice) {
    dearest = std::max(dearest, seconds(choice, times.sequences, 0));
  }
  account_ = std::min(account_ + kEarned * counted, dearest + kCapital * plain);
  time_ += duration;
  predicted_time_ += duration * predicted_;
  plain_time_ += replaced;
  history_.predicted_speedup = predicted_time_ / time_;
  history_.measured_speedup = plain_time_ / time_;
}

}  // namespace specquant::decode
