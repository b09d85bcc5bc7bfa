// Draft heads and hidden states on the GPU: against a float64 reference and the CPU engine, shape
// invariance, and what is refused. Skipped, with the reason, without a GPU.
#include <algorithm>
#include <cmath>
#include <string>

#include "cpu/model.h"
#include "tests/cuda_heads.h"
#include "tests/messages.h"
#include "tests/model_rows.h"
#include "tests/reference_model.h"
#include "tests/relative_error.h"

namespace specquant::cuda {
namespace {

using cpu::reference::RandomModel;
using cpu::reference::RandomModelSpec;
using test::all_specs;
using test::build;
using test::check_says;
using test::kContext;
using test::kPrecisions;
using test::kSlots;
using test::median;
using test::random_sequence;
using test::relative_error;
using test::Row;
using test::Sequence;
using test::target;

TEST_CASE("the hidden states of a model are those of a float64 reference") {
  NEEDS_GPU();
  const auto model = build(target());
  std::mt19937 random(3);
  const std::vector<int32_t> tokens = test::random_tokens(40, random);
  const Rows rows{0, 0, tokens, {}};
  const int taps[] = {3, 0, 2, 1, 2};
  const auto want = reference_outputs(target(), tokens);
  for (const auto& [precision, limit] :
       {std::pair{Precision::fp16, 2e-3}, {Precision::w4a16, 2e-3}, {Precision::bf16, 1.5e-2}}) {
    CAPTURE(std::string(name_of(precision)));
    model->forward(precision, {&rows, 1}, {LogitRows::none, 0, false, false, taps});
    for (std::size_t index = 0; index < std::size(taps); ++index) {
      CAPTURE(taps[index]);
      std::vector<double> errors;
      for (std::size_t row = 0; row < tokens.size(); ++row) {
        const auto hidden = static_cast<std::size_t>(target().shape().hidden);
        errors.push_back(relative_error(model->features(row).subspan(index * hidden, hidden),
                                        want.streams[row][static_cast<std::size_t>(taps[index])]));
      }
      // The median: in single rows of random weights a rounding error decides which key wins.
      CHECK(median(errors) < limit);
    }
  }
  CHECK_THROWS_AS(model->features(40), std::out_of_range);
}

TEST_CASE("hidden states are bitwise the same for any number of rows and in any batch") {
  NEEDS_GPU();
  const auto model = build(target());
  const int taps[] = {0, 1, 2, 3};
  std::mt19937 random(4);
  const std::vector<int32_t> tokens = test::random_tokens(100, random);
  for (const Precision precision : kPrecisions) {
    CAPTURE(std::string(name_of(precision)));
    std::vector<Row> alone;
    for (int i = 0; i < 100; ++i) {
      const Rows row{0, i, std::span(tokens).subspan(i, 1), {}};
      alone.push_back(test::forward(*model, precision, {row}, taps)[0]);
    }
    for (int n = 2; n <= 64; ++n) {
      CAPTURE(n);
      const int base = 100 - n - n % 5;
      const Rows rows{0, base, std::span(tokens).subspan(base, n), {}};
      const auto together = test::forward(*model, precision, {rows}, taps);
      CHECK(std::equal(together.begin(), together.end(), alone.begin() + base));
    }
    const Rows whole{1, 0, std::span(tokens).first(60), {}};
    const Rows rest{0, 60, std::span(tokens).subspan(60), {}};
    const auto batch = test::forward(*model, precision, {whole, rest}, taps);
    CHECK(batch == alone);
  }
}

// Relative errors of the logits and of the head's own feature of each row.
std::vector<double> errors_to_reference(Model& model, const RandomModel& head, Precision precision,
                                        const Sequence& sequence) {
  const auto count = static_cast<int>(sequence.tokens.size());
  const Rows rows = sequence.rows(0, 0, count);
  const int taps[] = {head.shape().layers};
  model.forward(precision, {&rows, 1}, {LogitRows::all, 0, false, true, taps});
  std::vector<std::vector<double>> features;
  for (int i = 0; i < count; ++i) {
    const auto feature = std::span(sequence.features).subspan(i * sequence.width, sequence.width);
    features.emplace_back(feature.begin(), feature.end());
  }
  const auto want = reference_outputs(head, sequence.tokens, {}, features);
  std::vector<double> errors;
  for (std::size_t row = 0; row < sequence.tokens.size(); ++row) {
    errors.push_back(relative_error(model.logits(row), want.logits[row]));
    errors.push_back(relative_error(model.features(row), want.streams[row][taps[0]]));
  }
  return errors;
}

TEST_CASE("a head equals its float64 reference, with the target's features and with its own") {
  NEEDS_GPU();
  for (const RandomModelSpec& spec : all_specs()) {
    CAPTURE(spec.seed);
    const RandomModel head(spec);
    const auto model = build(head);
    for (const int width : {head.shape().feature_width, head.shape().hidden}) {
      CAPTURE(width);
      const Sequence sequence = random_sequence(40, width, 7);
      const auto error = [&](Precision precision) {
        return median(errors_to_reference(*model, head, precision, sequence));
      };
      CHECK(error(Precision::fp16) < 2e-3);
      CHECK(error(Precision::w4a16) < 2e-3);
      CHECK(error(Precision::bf16) < 2e-2);
    }
  }
}

TEST_CASE("a head drafts what it drafts on the CPU, but for near ties") {
  NEEDS_GPU();
  int rows_compared = 0, ties = 0;
  for (const RandomModelSpec& spec : all_specs()) {
    const RandomModel head(spec);
    const auto on_gpu = build(head);
    const auto on_cpu =
        cpu::make_cpu_model(head.file(), kPrecisions, kSlots, kContext, 1, &target().file());
    for (const Precision precision : {Precision::fp16, Precision::w4a16, Precision::w4a8}) {
      CAPTURE(spec.seed);
      CAPTURE(std::string(name_of(precision)));
      const Sequence sequence = random_sequence(100, head.shape().feature_width, 9);
      const Rows rows = sequence.rows(0, 0, 100);
      const int taps[] = {head.shape().layers};
      const Want want{LogitRows::all, 2, true, true, taps};
      on_gpu->forward(precision, {&rows, 1}, want);
      on_cpu->forward(precision, {&rows, 1}, want);
      CHECK(std::ranges::equal(on_gpu->draft_tokens(), on_cpu->draft_tokens()));
      std::vector<double> features, logits;
      for (std::size_t row = 0; row < 100; ++row) {
        features.push_back(relative_error(on_gpu->features(row), on_cpu->features(row)));
        logits.push_back(relative_error(on_gpu->logits(row), on_cpu->logits(row)));
        ++rows_compared;
        const auto best = on_cpu->top(row);
        if (on_gpu->top(row)[0].token == best[0].token) continue;
        // Rounding errors of this row's logits must be able to turn the order.
        const auto all = on_cpu->logits(row);
        double square = 0.0;
        for (const float logit : all) square += static_cast<double>(logit) * logit;
        const double size = std::sqrt(square / static_cast<double>(all.size()));
        CHECK(best[0].logit - best[1].logit < 8.0 * logits.back() * size);
        ++ties;
      }
      const double limit = precision == Precision::w4a8 ? 3e-2 : 2e-3;
      CHECK(median(features) < limit);
      CHECK(median(logits) < limit);
    }
  }
  MESSAGE("first choices that differ: ", ties, " of ", rows_compared);
  CHECK(ties < rows_compared / 50);
}

TEST_CASE("a row of a head is bitwise the same in any batch, whatever features stand beside it") {
  NEEDS_GPU();
  for (const RandomModelSpec& spec : all_specs()) {
    CAPTURE(spec.seed);
    const RandomModel head(spec);
    const auto model = build(head);
    const int taps[] = {head.shape().layers};
    const Sequence fed = random_sequence(70, head.shape().feature_width, 8);
    const Sequence own = random_sequence(33, head.shape().hidden, 9);
    for (const Precision precision : kPrecisions) {
      CAPTURE(std::string(name_of(precision)));
      std::vector<Row> alone, alone_own;
      for (int i = 0; i < 70; ++i) {
        alone.push_back(test::forward(*model, precision, {fed.rows(0, i, 1)}, taps)[0]);
      }
      for (int i = 0; i < 33; ++i) {
        alone_own.push_back(test::forward(*model, precision, {own.rows(1, i, 1)}, taps)[0]);
      }
      CHECK(test::forward(*model, precision, {fed.rows(2, 0, 70)}, taps) == alone);
      for (const auto& [first, count] : {std::pair{0, 33}, {10, 3}}) {
        if (first > 0) {
          test::forward(*model, precision, {own.rows(3, 0, first), fed.rows(2, 0, first)}, taps);
        }
        const auto mixed = test::forward(
            *model, precision, {own.rows(3, first, count), fed.rows(2, first, count)}, taps);
        CHECK(std::equal(mixed.begin(), mixed.begin() + count, alone_own.begin() + first));
        CHECK(std::equal(mixed.begin() + count, mixed.end(), alone.begin() + first));
      }
    }
  }
}

std::string refusal(const RandomModelSpec& spec, const RandomModel* beside) {
  const RandomModel model(spec);
  try {
    make_cuda_model(model.file(), kPrecisions, 1, 64,
                    beside == nullptr ? nullptr : &beside->file());
    return "";
  } catch (const core::Error& error) {
    return error.what();
  }
}

TEST_CASE("heads and parts that the engine cannot serve are refused by name") {
  NEEDS_GPU();
  check_says(refusal(test::eagle2_spec(), nullptr),
             "is a draft head and drafts only beside its target");
  RandomModelSpec other = test::target_spec();
  other.seed = 99;
  const RandomModel stranger(other);
  check_says(refusal(test::eagle2_spec(), &stranger), "the content hash random 1, not for");
  RandomModelSpec deep = test::eagle3_spec();
  deep.shape.layers = 2;
  check_says(refusal(deep, &target()), "is an eagle3 head of 2 layers");
  RandomModelSpec biased = test::target_spec();
  biased.qkv_bias = true;
  check_says(refusal(biased, nullptr), "tensor 'layers.0.qkv_bias', which the CUDA engine cannot");
}

TEST_CASE("a forward of a head without its features is refused, as are features for a model") {
  NEEDS_GPU();
  const RandomModel head(test::eagle3_spec());
  const Sequence sequence = random_sequence(3, head.shape().feature_width, 12);
  Rows rows = sequence.rows(0, 0, 3);
  rows.features = rows.features.first(100);
  CHECK_THROWS_AS(build(head)->forward(Precision::w4a8, {&rows, 1}, {}), std::invalid_argument);
  CHECK_THROWS_AS(build(target())->forward(Precision::w4a8, {&rows, 1}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace specquant::cuda
