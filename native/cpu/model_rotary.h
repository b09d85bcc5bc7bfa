// Cosines and sines of rotary position embedding.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace specquant::cpu {

// For every position and rotary pair, computed in f64. `frequencies` are radians a position.
class RotaryTable {
 public:
  RotaryTable(std::span<const double> frequencies, int max_context)
      : pairs_(frequencies.size()), cosine_(pairs_ * max_context), sine_(pairs_ * max_context) {
    for (int position = 0; position < max_context; ++position) {
      for (std::size_t pair = 0; pair < pairs_; ++pair) {
        cosine_[start(position) + pair] =
            static_cast<float>(std::cos(position * frequencies[pair]));
        sine_[start(position) + pair] = static_cast<float>(std::sin(position * frequencies[pair]));
      }
    }
  }
  const float* cosine(int position) const { return cosine_.data() + start(position); }
  const float* sine(int position) const { return sine_.data() + start(position); }

 private:
  std::size_t start(int position) const { return static_cast<std::size_t>(position) * pairs_; }
  std::size_t pairs_;
  std::vector<float> cosine_, sine_;
};

}  // namespace specquant::cpu
