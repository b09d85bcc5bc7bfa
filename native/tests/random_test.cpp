// Random numbers by place and purpose.
#include "decode/random.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/chi_square.h"

namespace specquant::decode {
namespace {

using test::chi_square_excess;
using test::kLuck;

TEST_CASE("random numbers depend on their place alone and are the same everywhere") {
  CHECK(uniform(1, {2, 3}, Purpose::token) == uniform(1, {2, 3}, Purpose::token));
  CHECK(uniform(1, {2, 3}, Purpose::token) != uniform(1, {3, 2}, Purpose::token));
  CHECK(uniform(1, {2, 3}, Purpose::token) != uniform(1, {2, 3}, Purpose::draft));
  CHECK(uniform(1, {2, 3}, Purpose::token) != uniform(2, {2, 3}, Purpose::token));
  CHECK(scramble(0) == 0xe220a8397b1dcdafU);  // the first output of SplitMix64 from seed 0
}

TEST_CASE("random numbers of neighbouring places and purposes are uniform together") {
  const std::vector<double> expected(16 * 16, 1.0 / (16 * 16));
  const auto excess = [&](const std::function<double(int)>& one,
                          const std::function<double(int)>& other) {
    std::vector<int64_t> counts(expected.size(), 0);
    for (int i = 0; i < 100000; ++i) {
      ++counts[static_cast<std::size_t>(one(i) * 16) * 16 +
               static_cast<std::size_t>(other(i) * 16)];
    }
    return chi_square_excess(counts, expected);
  };
  const auto at = [](int request, int position, Purpose purpose) {
    return uniform(7, {request, position}, purpose);
  };
  CHECK(excess([&](int i) { return at(0, i, Purpose::token); },
               [&](int i) { return at(0, i + 1, Purpose::token); }) < kLuck);
  CHECK(excess([&](int i) { return at(i, 5, Purpose::token); },
               [&](int i) { return at(i + 1, 5, Purpose::token); }) < kLuck);
  CHECK(excess([&](int i) { return at(i, 5, Purpose::draft); },
               [&](int i) { return at(i, 5, Purpose::accept); }) < kLuck);
}

}  // namespace
}  // namespace specquant::decode
