// The CUDA model against a float64 Llama, and what it refuses. Skipped, with the reason, without a
// GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>

#include "tests/cuda_models.h"
#include "tests/cuda_parts.h"
#include "tests/model_rows.h"
#include "tests/reference_model.h"
#include "tests/relative_error.h"

namespace specquant::cuda {
namespace {

using namespace test;

using cpu::ActivationKind;
using cpu::reference::Rounding;

const Want kAllLogits{LogitRows::all, 1, true, true};

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
  for (const RandomModelSpec& spec : {narrow_spec(), wide_spec()}) {
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

// Attention rounds queries and weights to f16, so values near the edge between two codes flip more
// often than on the CPU. Most rows must still be far closer to the reference that rounds alike than
// to the one that does not.
void check_rounded(const RandomModelSpec& spec, Precision precision, const Rounding& rounding,
                   double limit) {
  const RandomModel random(spec);
  CAPTURE(std::string(name_of(precision)));
  CAPTURE(spec.seed);
  const std::vector<double> alike = errors(random, precision, rounding);
  const std::vector<double> unrounded = errors(random, precision, {});
  CHECK(alike[alike.size() / 2] < limit);
  CHECK(unrounded[unrounded.size() / 2] > 1.5 * alike[alike.size() / 2]);
}

TEST_CASE("logits of 8- and 4-bit activations follow a reference with the same rounding") {
  NEEDS_GPU();
  using A = ActivationKind;
  const auto rounding = [](A layers, A head) {
    Rounding r;
    r.layer_input = layers;
    r.head_input = head;
    r.kv_f16 = r.stored_f16 = true;
    return r;
  };
  for (const RandomModelSpec& spec : {narrow_spec(), wide_spec()}) {
    check_rounded(spec, Precision::w4a8, rounding(A::i8, A::i8), 6e-3);
    check_rounded(spec, Precision::w4a4, rounding(A::u4, A::f32), 0.1);
  }
  check_rounded(eight_bit_spec(), Precision::w8a8, rounding(A::i8, A::i8), 0.025);
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
