// How far results are from what is right.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace specquant::test {

// The Euclidean norm of what is off, by that of what is right.
template <class Found, class Right>
double relative_error(const Found& found, const Right& right) {
  REQUIRE(found.size() == right.size());
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double off = static_cast<double>(found[i]) - static_cast<double>(right[i]);
    difference += off * off;
    norm += static_cast<double>(right[i]) * static_cast<double>(right[i]);
  }
  return std::sqrt(difference / norm);
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace specquant::test
