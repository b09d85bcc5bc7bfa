// Hadamard matrices by Paley's constructions.
#include "core/hadamard.h"

#include <doctest/doctest.h>

#include <string>

namespace specquant::core {
namespace {

TEST_CASE("Paley's matrices are Hadamard matrices, in the rows that the Python side has") {
  for (const int width : {12, 48, 80, 112, 144, 176, 240, 304, 592}) {
    const Hadamard h = hadamard_of(width).value();
    REQUIRE((h.order * h.power == width && h.order % 4 == 0));
    for (int i = 0; i < h.order; ++i) {
      for (int j = 0; j < h.order; ++j) {
        int product = 0;
        for (int k = 0; k < h.order; ++k) {
          product += h.signs[i * h.order + k] * h.signs[j * h.order + k];
        }
        CHECK(product == (i == j ? h.order : 0));
      }
    }
  }
  const auto row = [](int width, int index) {
    const Hadamard h = hadamard_of(width).value();
    std::string text;
    for (int j = 0; j < h.order; ++j) text += h.signs[index * h.order + j] > 0 ? '+' : '-';
    return text;
  };
  CHECK(row(12, 1) == "-+-+---+++-+");
  CHECK(row(12, 11) == "--+---+++-++");
  CHECK(row(28, 1) == "--+-+-+-+-+-+-+-+-+-+-+-+-+-");
  CHECK(row(28, 27) == "+-+--++-+--+-+-+-++-+--++---");
  // 9 has no Hadamard matrix, 184 = 8·23 needs order 92, which Paley's fields do not give.
  for (const int width : {0, -4, 3, 9, 18, 184}) CHECK_FALSE(hadamard_of(width).has_value());
}

}  // namespace
}  // namespace specquant::core
