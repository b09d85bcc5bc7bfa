// What a round of a shape takes, by rows and depth.
#include "decode/shape_cost.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/shapes.h"

namespace specquant::decode {
namespace {

using test::chain;

TEST_CASE("times are linear between sizes and go on beyond the last") {
  TimeCurve curve;
  curve.set(1, 2.0);
  CHECK(curve.at(50) == 2.0);
  curve.set(5, 4.0);
  CHECK(curve.at(0) == 2.0);
  CHECK(curve.at(1) == 2.0);
  CHECK(curve.at(3) == 3.0);
  CHECK(curve.at(2.5) == 2.75);
  CHECK(curve.at(9) == 6.0);
  for (int i = 0; i < 100; ++i) curve.follow(3, 3.9);
  CHECK(curve.at(3) == doctest::Approx(3.9).epsilon(0.01));
  CHECK(curve.at(1) == doctest::Approx(2.0 * std::pow(1.3, 0.5)).epsilon(0.02));
  curve.follow(3, 3900.0);  // a single long one moves little
  CHECK(curve.at(3) < 3.9 * 1.1);
  curve.follow(3, 0.0);
  CHECK(curve.at(3) > 3.0);
}

TEST_CASE("a shape that was not tried costs as its depth says, and catching up is extra") {
  ShapeCost cost({chain(2), chain(6)});
  for (int rows = 1; rows <= 8; ++rows) cost.calibrate(rows, 1.0);
  for (int i = 0; i < 60; ++i) {
    cost.add_drafted(
        0, {.sequences = 1, .rows = 3, .draft_s = 0.4, .verify_s = 1.0, .other_s = 0.1}, 0, true);
  }
  CHECK(cost.plain(1) == doctest::Approx(1.1));
  CHECK(cost.drafted(0, 1, 2.0, 0) == doctest::Approx(1.5));
  CHECK(cost.drafted(1, 1, 6.0, 0) == doctest::Approx(2.3));
  for (int i = 0; i < 30; ++i) {
    cost.add_drafted(
        0, {.sequences = 1, .rows = 3, .draft_s = 0.9, .verify_s = 1.0, .other_s = 0.1}, 10, true);
  }
  CHECK(cost.drafted(0, 1, 2.0, 0) == doctest::Approx(1.5));
  CHECK(cost.drafted(0, 1, 2.0, 20) == doctest::Approx(2.5));
}

}  // namespace
}  // namespace specquant::decode
