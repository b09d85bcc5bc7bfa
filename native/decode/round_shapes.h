// The shape of each round of a run: one for all of them, or chosen by round.
#pragma once

#include <vector>

#include "decode/shape_choice.h"

namespace specquant::decode {

class RoundShapes {
 public:
  // Without a chooser every round has the shape `fixed`.
  RoundShapes(const Shape& fixed, ShapeChooser* chooser, int batch_size)
      : shape_(fixed), chooser_(chooser), paths_(static_cast<std::size_t>(batch_size)) {}

  const Shape& shape() const { return shape_; }  // of the round

  // `behind`: as for ShapeChooser.
  void choose(int sequences, int behind) {
    if (chooser_ != nullptr) shape_ = chooser_->shape(chooser_->choose(sequences, behind));
  }

  // What became of the proposal of one sequence that had room for a path of `room` tokens.
  void judged(std::size_t sequence, const Proposal& proposal, const Verdict& verdict, int room) {
    if (chooser_ != nullptr) describe_path(proposal, verdict, room, paths_[sequence]);
  }

  void ended(const RoundTimes& times, int committed) {
    if (chooser_ == nullptr) return;
    const auto drafted = shape_.nodes > 0 ? static_cast<std::size_t>(times.sequences) : 0;
    chooser_->observe(times, committed, std::span(paths_).first(drafted));
  }

 private:
  Shape shape_;
  ShapeChooser* chooser_;
  std::vector<PathOutcome> paths_;
};

}  // namespace specquant::decode
