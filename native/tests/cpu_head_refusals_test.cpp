// Draft heads that are refused on the CPU: whose they are, and forwards without their features.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

#include "core/errors.h"
#include "tests/cpu_heads.h"
#include "tests/messages.h"

namespace specquant::cpu {
namespace {

using namespace reference;
using test::check_says;

std::string refusal(const RandomModel& head, const RandomModel* target) {
  const Precision precisions[] = {Precision::w4a8};
  try {
    make_cpu_model(head.file(), precisions, 1, 64, 1,
                   target == nullptr ? nullptr : &target->file());
    return "";
  } catch (const core::Error& error) {
    CHECK(error.type() == core::ErrorType::model);
    return error.what();
  }
}

TEST_CASE("a head is refused without its target, with another's, and where the two do not fit") {
  const RandomModel head(eagle2_spec());
  CHECK(refusal(head, &target()).empty());
  check_says(refusal(head, nullptr), "it is a draft head and drafts only beside its target");
  check_says(refusal(target(), &target()), "it is a whole model, not a draft head");
  RandomModelSpec other = small_spec();
  other.seed = 99;
  const RandomModel stranger(other);
  check_says(refusal(head, &stranger),
             "the content hash random 1, not for random model with random 99");
  const auto spoilt = [&](const nlohmann::json& more) {
    RandomModelSpec spec = eagle2_own_spec();
    spec.more_metadata = more;
    return refusal(RandomModel(spec), &target());
  };
  nlohmann::json claim = {
      {"content_hash", "random 1"}, {"hidden_size", 64}, {"num_layers", 9}, {"taps", {3}}};
  check_says(spoilt({{"target", claim}}), "its target has 9 layers of width 64, but random model");
  RandomModelSpec small = eagle2_own_spec();
  small.shape.vocabulary = 290;
  check_says(refusal(RandomModel(small), &target()),
             "its vocabulary of 290 tokens is not the target's of 300");
  RandomModelSpec narrow = eagle3_narrow_spec();
  narrow.own_embedding = false;
  check_says(refusal(RandomModel(narrow), &target()),
             "tensor 'embed' is missing, and the target's, of width 64, does not fit");
}

TEST_CASE("a forward of a head without its features is refused, as are features for a model") {
  const RandomModel head(eagle3_spec());
  const auto model = build(head, 1);
  const Sequence sequence = random_sequence(3, head.shape().feature_width, 12);
  Rows rows = sequence.rows(0, 0, 3);
  rows.features = rows.features.first(100);
  CHECK_THROWS_AS(model->forward(Precision::w4a8, {&rows, 1}, {}), std::invalid_argument);
  const Precision precisions[] = {Precision::w4a8};
  const auto whole = make_cpu_model(target().file(), precisions, 1, 64, 1);
  CHECK_THROWS_AS(whole->forward(Precision::w4a8, {&rows, 1}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace specquant::cpu
