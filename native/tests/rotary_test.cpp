// Frequencies of rotary position embeddings.
#include "core/rotary.h"

#include <doctest/doctest.h>

#include <utility>

namespace specquant::core {
namespace {

TEST_CASE("Llama 3.1's rotary frequencies are those that transformers computes") {
  // ROPE_INIT_FUNCTIONS["llama3"] of transformers 5.17 for heads of 128, theta 500000.
  const RopeScaling scaling{RopeScaling::Kind::llama3, 8.0, 1.0, 4.0, 8192};
  const auto found = rotary_frequencies(128, 500000.0, scaling);
  const std::pair<int, double> want[] = {{0, 1.0},
                                         {1, 0.8146172165870667},
                                         {20, 0.016560440883040428},
                                         {28, 0.0032114461064338684},
                                         {29, 0.0021665706299245358},
                                         {31, 0.0008567514596506953},
                                         {33, 0.0003126936499029398},
                                         {36, 7.784655463183299e-05},
                                         {63, 3.068925877869333e-07}};
  REQUIRE(found.size() == 64);
  for (const auto& [pair, value] : want) {
    CHECK(found[pair] == doctest::Approx(value).epsilon(2e-6));  // it computes in f32
  }
}

}  // namespace
}  // namespace specquant::core
