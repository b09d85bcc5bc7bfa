// Pearson's test of counts against probabilities.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace specquant::test {

// By how many standard deviations the chi-square statistic lies above its mean (Wilson and
// Hilferty's cube root makes it normal). Outcomes that are expected less than five times count as
// one. Infinite where something happened that has no probability.
inline double chi_square_excess(std::span<const int64_t> counts, std::span<const double> expected) {
  double draws = 0.0;
  for (const int64_t count : counts) draws += static_cast<double>(count);
  double statistic = 0.0;
  double rare_count = 0.0;
  double rare_expected = 0.0;
  int cells = 0;
  const auto add = [&](double count, double mean) {
    statistic += (count - mean) * (count - mean) / mean;
    ++cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double mean = expected[i] * draws;
    if (mean == 0.0 && counts[i] > 0) return std::numeric_limits<double>::infinity();
    if (mean < 5.0) {
      rare_count += static_cast<double>(counts[i]);
      rare_expected += mean;
    } else {
      add(static_cast<double>(counts[i]), mean);
    }
  }
  if (rare_expected > 0.0) add(rare_count, rare_expected);
  const double freedom = cells - 1;
  const double spread = 2.0 / (9.0 * freedom);
  return (std::cbrt(statistic / freedom) - (1.0 - spread)) / std::sqrt(spread);
}

// Chance of passing this by luck: 3e-5.
constexpr double kLuck = 4.0;

}  // namespace specquant::test
