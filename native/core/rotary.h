// Frequencies of rotary position embedding, as trained or stretched for longer contexts.
#pragma once

#include <vector>

namespace specquant::core {

struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 1.0;  // llama3
  int original_max_position = 0;                         // llama3
};

// Radians a position for each of head_dim / 2 pairs: theta^(−2i / head_dim), divided by `factor`
// where scaling is linear. `llama3` divides the waves longer than
// original_max_position / low_freq_factor, leaves those shorter than
// original_max_position / high_freq_factor, and blends in between (as Llama 3.1 defines it;
// `_compute_llama3_parameters` of transformers).
std::vector<double> rotary_frequencies(int head_dim, double theta, const RopeScaling& scaling);

}  // namespace specquant::core
