// What every device refuses: rows against their rules and a model's limits, and weights that a
// precision cannot use.
#include "decode/device.h"

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/errors.h"
#include "decode/model_limits.h"
#include "decode/precision_errors.h"
#include "tests/messages.h"

namespace specquant {
namespace {

using test::check_says;

constexpr int kSlots = 2, kContext = 100, kVocabulary = 5;

// What validate() says of one sequence: "" where it takes it.
std::string verdict(const Rows& rows) {
  try {
    validate(std::span(&rows, 1), kSlots, kContext, kVocabulary);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST_CASE("a forward is refused by the row that breaks the rules") {
  const std::vector<int32_t> tokens{1, 2, 3};
  const std::vector<uint64_t> tree{0b001, 0b011, 0b101};
  CHECK(verdict({1, kContext - 3, tokens, tree}).empty());
  check_says(verdict({kSlots, 0, tokens, {}}), "slot");
  check_says(verdict({0, kContext - 2, tokens, {}}), "row 2: the position is beyond the cache");
  check_says(verdict({0, -1, tokens, {}}), "negative");
  check_says(verdict({0, 0, {}, {}}), "no tokens");
  const std::vector<int32_t> foreign{1, kVocabulary, 3};
  check_says(verdict({0, 0, foreign, {}}), "row 1: the token");
  const std::vector<uint64_t> blind{0b001, 0b001, 0b101};
  const std::vector<uint64_t> later{0b001, 0b111, 0b101};
  const std::vector<uint64_t> graph{0b001, 0b010, 0b111};
  const std::vector<uint64_t> few{0b001, 0b011};
  check_says(verdict({0, 0, tokens, blind}), "row 1: it does not see itself");
  check_says(verdict({0, 0, tokens, later}), "row 1: it sees a later row");
  check_says(verdict({0, 0, tokens, graph}), "row 2: its ancestors");
  check_says(verdict({0, 0, tokens, few}), "one ancestor word");
  CHECK_THROWS_AS(validate({}, kSlots, kContext, kVocabulary), std::invalid_argument);
  const std::vector<Rows> twice{{0, 0, tokens, {}}, {0, 0, tokens, {}}};
  CHECK_THROWS_AS(validate(twice, kSlots, kContext, kVocabulary), std::invalid_argument);
}

TEST_CASE("words of a growing tree count from its trunk") {
  const std::vector<int32_t> tokens{1, 2};
  // Nodes 0 and 1 lie in the cache at 20 and 21; these are 2 and 3, children of 0 and of 2.
  const std::vector<uint64_t> words{0b0101, 0b1101};
  CHECK(verdict({0, 22, tokens, words, 20}).empty());
  check_says(verdict({0, 22, tokens, words}), "it sees a later row");
  check_says(verdict({0, 22, tokens, words, 19}), "row 0: it does not see itself");
  check_says(verdict({0, 22, tokens, words, 23}), "the trunk is not between 0 and the base");
  check_says(verdict({0, 22, tokens, words, -2}), "the trunk is not between 0 and the base");
  check_says(verdict({0, 22, tokens, {}, 20}), "a trunk is given without ancestors");
}

TEST_CASE("a tree has at most 64 nodes, those of earlier forwards included") {
  const std::vector<int32_t> tokens{1, 2};
  const std::vector<uint64_t> last{uint64_t{1} << 62, uint64_t{1} << 63};
  CHECK(verdict({0, 62, tokens, last, 0}).empty());
  check_says(verdict({0, 63, tokens, last, 0}), "at most 64 rows");
  check_says(verdict({0, 90, tokens, last, 0}), "at most 64 rows");
}

TEST_CASE("two words must agree about an ancestor of an earlier forward") {
  const std::vector<int32_t> tokens{1, 2};
  const auto with = [&](uint64_t first, uint64_t second) {
    const std::vector<uint64_t> words{first, second};
    return verdict({0, 3, tokens, words, 0});
  };
  CHECK(with(0b01110, 0b10110).empty());  // node 2's parent is 1, node 1 has none
  check_says(with(0b01110, 0b10100), "row 1: its ancestors are not those of its parent");
  check_says(with(0b01110, 0b10111), "row 1: its ancestors are not those of its parent");
  check_says(with(0b01001, 0b11100), "row 1: its ancestors are not those of its parent");
}

TEST_CASE("features have one of the two widths of a draft head, and no other model takes any") {
  const std::vector<int32_t> tokens{1, 2};
  const std::vector<float> features(2 * 96);
  const auto verdict_of = [&](std::size_t values, int feature_width) {
    ModelShape shape;
    shape.hidden = 32;
    shape.feature_width = feature_width;
    const Rows rows{0, 0, tokens, {}, -1, std::span(features).first(values)};
    try {
      validate_features(std::span(&rows, 1), shape);
      return std::string();
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
  };
  CHECK(verdict_of(0, 0).empty());
  CHECK(verdict_of(2 * 96, 96).empty());
  CHECK(verdict_of(2 * 32, 96).empty());
  check_says(verdict_of(64, 0), "Sequence 0, row 0: the model takes no features.");
  for (const std::size_t values : {0, 32, 96, 191}) {
    check_says(verdict_of(values, 96), "of 96 values from the target or 32 of its own");
  }
}

std::string refusal(const std::function<void(const ModelLimits&)>& ask) {
  ModelShape shape;
  shape.vocabulary = kVocabulary;
  shape.layers = 2;
  try {
    ask(ModelLimits(shape, kSlots, kContext));
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST_CASE("a model is made for at least one slot of one token") {
  for (const auto& [slots, tokens] : {std::pair{0, 1}, {1, 0}, {-1, 5}}) {
    CHECK_THROWS_AS(ModelLimits({}, slots, tokens), core::Error);
  }
}

TEST_CASE("a forward is held against all of a model's limits") {
  const std::vector<int32_t> tokens{1, 2};
  const auto forward = [&](Rows rows, Want want) {
    return refusal([&](const ModelLimits& limits) { limits.check_forward({&rows, 1}, want, 4); });
  };
  const int tap = 4;
  Want taps;
  taps.taps = {&tap, 1};
  CHECK(forward({0, 0, tokens}, {LogitRows::all, 4}).empty());
  check_says(forward({2, 0, tokens}, {}), "the slot is out of range");
  check_says(forward({0, 99, tokens}, {}), "beyond the cache");
  check_says(forward({0, 0, tokens}, {LogitRows::all, 5}), "between 0 and the vocabulary's 4");
  check_says(forward({0, 0, tokens}, {LogitRows::all, -1}), "top_k");
  check_says(forward({0, 0, tokens}, taps), "Tap 4 is not between 0 and 3");
}

TEST_CASE("slots, lengths and paths to keep lie inside the cache") {
  const auto slot = [](int number, int length) {
    return refusal([&](const ModelLimits& limits) { limits.check_slot(number, length); });
  };
  CHECK(slot(1, 100).empty());
  check_says(slot(2, 0), "Slot 2 is not among the 2 slots.");
  check_says(slot(-1, 0), "Slot -1");
  check_says(slot(0, 101), "A slot holds 0 to 100 tokens, not 101.");
  const auto path = [](int base, const std::vector<int>& kept) {
    return refusal([&](const ModelLimits& limits) { limits.check_path(0, base, kept); });
  };
  CHECK(path(100, {}).empty());
  CHECK(path(90, {0, 3, 9}).empty());
  check_says(path(90, {0, 3, 10}), "ends behind the 100 tokens");
  check_says(path(90, {3, 3}), "does not rise");
  check_says(path(90, {-1, 3}), "does not rise");
  check_says(path(101, {}), "not 101");
}

TEST_CASE("weights that a precision cannot use are named with what to do") {
  core::TensorView tensor;
  tensor.name = "layers.3.qkv";
  tensor.kind = core::TensorKind::affine4z;
  const auto check_refused = [](const auto& refuse, core::ErrorType type, const char* message) {
    try {
      refuse();
      FAIL("it was taken");
    } catch (const core::Error& error) {
      CHECK(error.type() == type);
      CHECK(std::string(error.what()) == message);
    }
  };
  check_refused(
      [&] { refuse_stored_kind(Precision::w8a8, tensor, "8-bit weights (affine8)"); },
      core::ErrorType::unsupported,
      "Precision w8a8 needs 8-bit weights (affine8), but tensor 'layers.3.qkv' is stored as "
      "affine4z. Choose another precision or device, or pack the checkpoint again.");
  check_refused([&] { refuse_for_f16(tensor.name); }, core::ErrorType::model,
                "Tensor 'layers.3.qkv' has weights that are too large for fp16. Use bf16 as the "
                "16-bit precision.");
  CHECK_THROWS_AS(refuse_unloaded(Precision::w4a4), std::invalid_argument);
}

}  // namespace
}  // namespace specquant
