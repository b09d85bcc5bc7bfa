// The CUDA model against a float64 Llama, and what it refuses. Skipped, with the reason, without a
// GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "tests/cuda_models.h"
#include "tests/cuda_parts.h"
#include "tests/messages.h"
#include "tests/model_rows.h"
#include "tests/reference_model.h"
#include "tests/relative_error.h"

namespace specquant::cuda {
namespace {

using namespace test;

using cpu::ActivationKind;
using cpu::reference::Rounding;

const Want kAllLogits{LogitRows::all, 1, true, true};

// Every layout of 4-bit weights.
std::vector<RandomModelSpec> four_bit_specs() {
  return {narrow_spec(), wide_spec(), zero_point_spec(32), zero_point_spec(64),
          zero_point_spec(128)};
}

// Relative errors (Euclidean norms) of the rows of one sequence, rising.
std::vector<double> errors(const RandomModel& random, Precision precision,
                           const Rounding& rounding) {
  const Precision precisions[] = {precision};
  const auto model = build(random, precisions);
  std::mt19937 source(7);
  const Tokens tokens = random_tokens(40, source);
  const Rows rows{0, 0, tokens, {}};
  model->forward(precision, {&rows, 1}, kAllLogits);
  const auto want = reference_outputs(random, tokens, rounding).logits;
  std::vector<double> found;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    found.push_back(relative_error(model->logits(row), want[row]));
  }
  std::ranges::sort(found);
  return found;
}

TEST_CASE("logits of 16-bit activations stay close to unrounded float64") {
  NEEDS_GPU();
  for (const RandomModelSpec& spec : four_bit_specs()) {
    const RandomModel random(spec);
    CAPTURE(spec.seed);
    // The median: in single rows of random weights a rounding error decides which key wins, on the
    // CPU too.
    const auto median = [&](Precision precision) { return errors(random, precision, {})[20]; };
    CHECK(median(Precision::fp16) < 2e-3);
    CHECK(median(Precision::w4a16) < 2e-3);
    CHECK(median(Precision::bf16) < 1.5e-2);
  }
}

// How the engine rounds the inputs of layers and head, attention apart.
Rounding rounding_of(Precision precision) {
  Rounding r;
  if (precision == Precision::w4a4) r.layer_input = ActivationKind::u4;
  if (precision == Precision::w4a8 || precision == Precision::w8a8) {
    r.layer_input = r.head_input = ActivationKind::i8;
  }
  r.kv_f16 = r.stored_f16 = true;
  return r;
}

// Attention rounds the softmax's weights to f16 too, so values near the edge between two codes flip
// more often than on the CPU, and all rows behind them move. Most rows must still be closer to the
// reference that rounds alike than to the one that does not. (Weights with zero points have no
// common mean, and a flip moves as much of their small sums as the rounding itself does: they are
// left to first tokens, below.)
void check_rounded(const RandomModelSpec& spec, Precision precision, double limit) {
  const RandomModel random(spec);
  CAPTURE(std::string(name_of(precision)));
  CAPTURE(spec.seed);
  const std::vector<double> alike = errors(random, precision, rounding_of(precision));
  const std::vector<double> unrounded = errors(random, precision, {});
  CHECK(alike[alike.size() / 2] < limit);
  CHECK(unrounded[unrounded.size() / 2] > 1.5 * alike[alike.size() / 2]);
}

TEST_CASE("logits of 8- and 4-bit activations follow a reference with the same rounding") {
  NEEDS_GPU();
  for (const RandomModelSpec& spec : {narrow_spec(), wide_spec()}) {
    check_rounded(spec, Precision::w4a8, 6e-3);
    check_rounded(spec, Precision::w4a4, 0.1);
  }
  check_rounded(eight_bit_spec(), Precision::w8a8, 0.025);
}

// The first token of a sequence attends to itself alone, with a weight of one, so that the engine
// rounds nothing that the reference does not. Still a value at the edge between two codes or two
// f16 numbers may fall to either side, and all that follows from it moves; a quarter of the tokens
// at least must escape that.
std::vector<double> first_token_errors(const RandomModel& random, Precision precision,
                                       const Rounding& rounding) {
  const Precision precisions[] = {precision};
  const auto model = build(random, precisions);
  std::mt19937 source(7);
  std::vector<double> found;
  for (const int32_t token : random_tokens(40, source)) {
    const Rows rows{0, 0, {&token, 1}, {}};
    model->forward(precision, {&rows, 1}, kAllLogits);
    const auto want = reference_outputs(random, {&token, 1}, rounding).logits;
    found.push_back(relative_error(model->logits(0), want[0]));
  }
  std::ranges::sort(found);
  return found;
}

TEST_CASE("first tokens of sequences equal a reference with the same rounding") {
  NEEDS_GPU();
  const auto check = [](const RandomModelSpec& spec, Precision precision, double limit) {
    const RandomModel random(spec);
    CAPTURE(std::string(name_of(precision)));
    CAPTURE(spec.seed);
    const double alike = first_token_errors(random, precision, rounding_of(precision))[10];
    CHECK(alike < limit);
    if (precision == Precision::w4a16) return;  // nothing is rounded to integers
    CHECK(first_token_errors(random, precision, {})[10] > 1000.0 * alike);
  };
  for (const RandomModelSpec& spec : four_bit_specs()) {
    check(spec, Precision::w4a16, 5e-4);  // products of f16 carry 1024 beside each code
    check(spec, Precision::w4a8, 1e-6);
    check(spec, Precision::w4a4, 5e-5);  // and so does its head's
  }
  check(eight_bit_spec(), Precision::w8a8, 1e-6);
}

TEST_CASE("top-k and log-sum agree with the whole row of logits") {
  NEEDS_GPU();
  const RandomModel random(narrow_spec());
  const Precision precisions[] = {Precision::w4a16};
  const auto model = build(random, precisions);
  std::mt19937 source(5);
  const Tokens tokens = random_tokens(70, source);
  const Rows rows{0, 0, tokens, {}};
  for (const int k : {1, 7, 32, 50, 300}) {
    model->forward(Precision::w4a16, {&rows, 1}, {LogitRows::all, k, true, true});
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      REQUIRE(model->logits(row).size() == 300);
      check_ranked(*model, row, k, 1e-5);
    }
  }
}

TEST_CASE("weights with zero points are read as 4-bit codes, an embedding and a head too") {
  NEEDS_GPU();
  const RandomModel random(zero_point_spec(64));
  const Precision precisions[] = {Precision::w4a16, Precision::w4a8, Precision::w4a4};
  const auto model = build(random, precisions);
  std::vector<std::string> kinds;
  for (const auto& [kind, bytes] : model->memory().weight_bytes) kinds.push_back(kind);
  CHECK(kinds == std::vector<std::string>{"affine4z group 32", "f32"});
  for (const auto& [precision, inputs] :
       {std::pair{Precision::w4a16, "f16"}, {Precision::w4a8, "i8"}, {Precision::w4a4, "i8"}}) {
    CAPTURE(std::string(name_of(precision)));
    const std::string kernel = model->proof(precision).kernels[0];
    CHECK(kernel.starts_with(std::string("affine4z group 32 x ") + inputs + ","));
  }
}

TEST_CASE("layers with and without zero points in one model are refused but as 16-bit weights") {
  NEEDS_GPU();
  RandomModelSpec spec = narrow_spec();
  spec.other_kinds["layers.1.o"] = WeightKind::affine4z;
  const RandomModel random(spec);
  const Precision precisions[] = {Precision::w4a16};
  try {
    build(random, precisions);
    FAIL("it was taken");
  } catch (const core::Error& error) {
    CHECK(error.type() == core::ErrorType::unsupported);
    check_says(error.what(),
               "Precision w4a16 needs layers of 4-bit weights (on a GPU all affine4 or all "
               "affine4z), but tensor 'layers.1.o' is stored as affine4z.");
  }
  CHECK(errors(random, Precision::bf16, {})[20] < 1.5e-2);
}

TEST_CASE("the proof names the architecture that the kernels were compiled for") {
  NEEDS_GPU();
  const RandomModel random(narrow_spec());
  const Precision precisions[] = {Precision::w4a4};
  const Proof proof = build(random, precisions)->proof(Precision::w4a4);
  const int compiled = describe_device().compiled;
  for (const std::string& kernel : proof.kernels) {
    CHECK(kernel.ends_with(", sm_" + std::to_string(compiled)));
  }
  CHECK((proof.compute_dtype.find("sm_90 has none") != std::string::npos) == (compiled >= 90));
}

TEST_CASE("bad requests are refused") {
  NEEDS_GPU();
  const RandomModel random(narrow_spec());
  const Precision precisions[] = {Precision::w4a16};
  const auto model = build(random, precisions);
  const Tokens tokens{1, 2};
  const auto ask = [&](Precision precision, Rows rows, Want want) {
    model->forward(precision, {&rows, 1}, want);
  };
  CHECK_THROWS_AS(ask(Precision::fp16, {0, 0, tokens, {}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(ask(Precision::w4a16, {kSlots, 0, tokens, {}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(ask(Precision::w4a16, {0, kContext, tokens, {}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(ask(Precision::w4a16, {0, 0, tokens, {}}, {LogitRows::all, 301, false, false}),
                  std::invalid_argument);
  const Precision eight[] = {Precision::w8a8};
  CHECK_THROWS_AS(build(random, eight), core::Error);
  const int tap = random.shape().layers + 2;
  Want taps;
  taps.taps = {&tap, 1};
  CHECK_THROWS_AS(ask(Precision::w4a16, {0, 0, tokens, {}}, taps), std::invalid_argument);
  CHECK_THROWS_AS(make_cuda_model(random.file(), precisions, 1, 1 << 30), std::exception);
}

}  // namespace
}  // namespace specquant::cuda
