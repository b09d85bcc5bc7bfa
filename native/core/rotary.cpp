#include "core/rotary.h"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace specquant::core {
namespace {

double scaled(double frequency, const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
      return frequency;
    case RopeScaling::Kind::linear:
      return frequency / scaling.factor;
    case RopeScaling::Kind::llama3:
      break;
  }
  const double waves = scaling.original_max_position * frequency / (2.0 * std::numbers::pi);
  if (waves > scaling.high_freq_factor) return frequency;
  if (waves < scaling.low_freq_factor) return frequency / scaling.factor;
  const double kept =
      (waves - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return kept * frequency + (1.0 - kept) * frequency / scaling.factor;
}

}  // namespace

std::vector<double> rotary_frequencies(int head_dim, double theta, const RopeScaling& scaling) {
  std::vector<double> frequencies(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t pair = 0; pair < frequencies.size(); ++pair) {
    const double exponent = static_cast<double>(pair) / static_cast<double>(frequencies.size());
    frequencies[pair] = scaled(std::pow(theta, -exponent), scaling);
  }
  return frequencies;
}

}  // namespace specquant::core
