// Draft heads on the CPU: against a float64 reference, and the memory that they take.
#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "tests/cpu_heads.h"
#include "tests/reference_model.h"
#include "tests/relative_error.h"

namespace specquant::cpu {
namespace {

using namespace reference;

// Relative errors of a row's logits and of its feature (the stream behind the last layer).
std::vector<double> row_errors(const RandomModel& head, Precision precision, int width,
                               const Rounding& rounding) {
  const auto model = build(head);
  const Sequence sequence = random_sequence(40, width, 7);
  const Rows rows = sequence.rows(0, 0, 40);
  const int taps[] = {head.shape().layers};
  model->forward(precision, {&rows, 1}, {LogitRows::all, 0, false, true, taps});
  std::vector<std::vector<double>> features;
  for (int i = 0; i < 40; ++i) {
    const auto feature = std::span(sequence.features).subspan(i * width, width);
    features.emplace_back(feature.begin(), feature.end());
  }
  const auto want = reference_outputs(head, sequence.tokens, rounding, features);
  std::vector<double> errors;
  for (std::size_t row = 0; row < 40; ++row) {
    errors.push_back(test::relative_error(model->logits(row), want.logits[row]));
    errors.push_back(test::relative_error(model->features(row), want.streams[row][taps[0]]));
  }
  std::ranges::sort(errors);
  return errors;
}

TEST_CASE("a head equals its float64 reference, with the target's features and with its own") {
  using A = ActivationKind;
  for (const RandomModelSpec& spec : all_specs()) {
    CAPTURE(spec.seed);
    const RandomModel head(spec);
    for (const int width : {head.shape().feature_width, head.shape().hidden}) {
      CAPTURE(width);
      for (const Precision precision : {Precision::fp16, Precision::w4a16}) {
        const auto found = row_errors(head, precision, width, {});
        CHECK(found[found.size() / 2] < 2e-3);
        CHECK(found.back() < 2e-2);
      }
      // Rounded values that lie on an edge may fall to either side: see cpu_model_test.
      const auto w4a8 = row_errors(head, Precision::w4a8, width, {A::i8, A::i8, true, A::i8});
      CHECK(w4a8[w4a8.size() / 2] < 3e-5);
      CHECK(w4a8.back() < 0.05);
      const auto w4a4 = row_errors(head, Precision::w4a4, width, {A::u4, A::i16, true, A::i16});
      CHECK(w4a4[w4a4.size() / 2] < 3e-4);
    }
  }
}

TEST_CASE("a borrowed embedding costs no memory, a borrowed output head its rows") {
  RandomModelSpec spec = target_spec();
  spec.head_kind = WeightKind::affine8;
  spec.layer_kind = WeightKind::affine4;
  const RandomModel eight(spec);
  const auto bytes = [&](RandomModelSpec head_spec) {
    head_spec.target = &eight;
    const Precision precisions[] = {Precision::w4a8};
    const RandomModel head(head_spec);
    return make_cpu_model(head.file(), precisions, 1, 64, 1, &eight.file())
        ->memory()
        .weight_bytes.at("affine8");
  };
  const auto tiles = [](std::size_t rows) { return static_cast<int64_t>((rows + 15) / 16); };
  const int64_t tile = 2 * (32 * 16 + 32);
  CHECK(bytes(eagle2_spec()) == tiles(kVocabulary) * tile);
  CHECK(bytes(eagle2_reduced_spec()) == tiles(frequent_tokens(kVocabulary).size()) * tile);
}

}  // namespace
}  // namespace specquant::cpu
