// The CPU model against a float64 Llama, and what it says of its memory and its kernels.
#include "cpu/model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include "tests/model_rows.h"
#include "tests/reference_model.h"
#include "tests/relative_error.h"

namespace specquant::cpu {
namespace {

using reference::RandomModel;
using reference::RandomModelSpec;
using test::check_ranked;
using test::relative_error;
using test::Tokens;

RandomModelSpec untied_spec() {
  RandomModelSpec spec;
  spec.shape = {192, 256, 2, 3, 1, 64, 300, 512, 100000.0F, 1e-5F, false};
  spec.head_kind = WeightKind::affine4;
  spec.group = 64;
  spec.seed = 2;
  return spec;
}

// GPTQ's and AWQ's integer zero points, in the layers and in an untied head, and act-order.
RandomModelSpec zero_point_spec() {
  RandomModelSpec spec = untied_spec();
  spec.layer_kind = spec.head_kind = WeightKind::affine4z;
  spec.columns = true;
  spec.seed = 6;
  return spec;
}

RandomModelSpec eight_bit_spec() {
  RandomModelSpec spec = reference::small_spec();
  spec.layer_kind = WeightKind::affine8;
  spec.seed = 3;
  return spec;
}

// Five query heads share a key-value head, and a head is no multiple of 64 dimensions.
RandomModelSpec odd_heads_spec() {
  RandomModelSpec spec = reference::small_spec();
  spec.shape.heads = 10;
  spec.shape.head_dim = 48;
  spec.seed = 4;
  return spec;
}

Tokens seeded_tokens(int count, int vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  return test::random_tokens(count, random, vocabulary);
}

// Relative errors (Euclidean norms) of the logits of one sequence.
struct Errors {
  double whole = 0.0;        // all rows as one vector
  std::vector<double> rows;  // rising
  double median() const { return rows[rows.size() / 2]; }
  double largest() const { return rows.back(); }
};

Errors errors(const RandomModel& random, Precision precision, const reference::Rounding& rounding) {
  const Precision precisions[] = {precision};
  const auto model = make_cpu_model(random.file(), precisions, 1, 64, 2);
  const Tokens tokens = seeded_tokens(40, random.shape().vocabulary, 7);
  const Rows rows{0, 0, tokens, {}};
  model->forward(precision, {&rows, 1}, {LogitRows::all, 0, false, true});
  const auto want = reference_outputs(random, tokens, rounding).logits;
  Errors found;
  std::vector<float> all;
  std::vector<double> right;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const auto logits = model->logits(row);
    found.rows.push_back(relative_error(logits, want[row]));
    all.insert(all.end(), logits.begin(), logits.end());
    right.insert(right.end(), want[row].begin(), want[row].end());
  }
  found.whole = relative_error(all, right);
  std::ranges::sort(found.rows);
  return found;
}

TEST_CASE("logits of 16-bit activations stay close to unrounded float64") {
  for (const RandomModelSpec& spec :
       {reference::small_spec(), untied_spec(), odd_heads_spec(), zero_point_spec(),
        reference::biased_spec(), reference::normed_heads_spec(), reference::transformed_spec()}) {
    const RandomModel random(spec);
    CAPTURE(spec.seed);
    CHECK(errors(random, Precision::fp16, {}).whole < 2e-3);
    CHECK(errors(random, Precision::w4a16, {}).whole < 2e-3);
    CHECK(errors(random, Precision::bf16, {}).whole < 1.5e-2);
  }
}

// The reference rounds activations as the kernels do. It does so from float64, the model from f32,
// so that a value which lies within 1e-6 of the edge between two codes may fall to either side.
// Such a flip is one step of one value: at 8 bits a few thousandths of a product, at 4 bits a few
// hundredths, and all roundings behind it move too. Flips are rare, so most rows must agree to the
// accuracy of f32 sums; leaving the rounding out would make each row's error a hundred times that
// (checked below).
void check_rounded(const RandomModelSpec& spec, Precision precision,
                   const reference::Rounding& rounding, double limit_with_flips) {
  const RandomModel random(spec);
  CAPTURE(std::string(name_of(precision)));
  CAPTURE(spec.seed);
  const Errors found = errors(random, precision, rounding);
  CHECK(found.median() < 3e-5);
  CHECK(found.largest() < limit_with_flips);
  CHECK(errors(random, precision, {}).median() > 100.0 * found.median());
}

TEST_CASE("logits of 8- and 4-bit activations equal a reference with the same rounding") {
  using A = ActivationKind;
  for (const RandomModelSpec& spec :
       {reference::small_spec(), untied_spec(), zero_point_spec(), reference::biased_spec(),
        reference::normed_heads_spec(), reference::transformed_spec()}) {
    check_rounded(spec, Precision::w4a8, {A::i8, A::i8, true}, 0.03);
    // With wider heads a row has so many values that one of them flips in most rows.
    if (spec.head_norms) continue;
    check_rounded(spec, Precision::w4a4, {A::u4, A::i16, true}, 0.5);
    check_rounded(spec, Precision::w4a4_g16, {A::u4g16, A::i16, true}, 0.5);
    check_rounded(spec, Precision::w4a4_qkv8, {A::u4, A::i16, true, A::f32, {"qkv"}}, 0.5);
    check_rounded(spec, Precision::w4a4_g16_qkv8, {A::u4g16, A::i16, true, A::f32, {"qkv"}}, 0.5);
    check_rounded(spec, Precision::w4a4_od8, {A::u4, A::i16, true, A::f32, {"o", "down"}}, 0.5);
    check_rounded(spec, Precision::w4a4_g16_od8, {A::u4g16, A::i16, true, A::f32, {"o", "down"}},
                  0.5);
  }
  check_rounded(eight_bit_spec(), Precision::w8a8, {A::i8, A::i8, true}, 0.03);
}

TEST_CASE(
    "shapes of Qwen2 0.5B and Qwen3 run: wide layers, few key-value heads, other head widths") {
  for (const bool second : {true, false}) {
    RandomModelSpec spec;
    spec.shape = {896, 4864, 1, 14, 2, 64, 304, 512, 1e6F, 1e-6F, true};
    spec.qkv_bias = second;
    if (!second) {
      spec.shape.hidden = 1024;
      spec.shape.intermediate = 3072;
      spec.shape.heads = 16;
      spec.shape.kv_heads = 8;
      spec.shape.head_dim = 128;
      spec.head_norms = true;
    }
    const RandomModel random(spec);
    const Precision precisions[] = {Precision::w4a16};
    const auto model = make_cpu_model(random.file(), precisions, 1, 16, 2);
    const Tokens tokens = seeded_tokens(4, 304, 7);
    const Rows rows{0, 0, tokens, {}};
    model->forward(Precision::w4a16, {&rows, 1}, {LogitRows::all, 0, false, true});
    const auto want = reference_outputs(random, tokens).logits;
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      CHECK(relative_error(model->logits(row), want[row]) < 3e-3);
    }
  }
}

TEST_CASE("top-k and log-sum agree with the whole row of logits") {
  const RandomModel random(reference::small_spec());
  const Precision precisions[] = {Precision::w4a8};
  const auto model = make_cpu_model(random.file(), precisions, 1, 64, 2);
  const Tokens tokens = seeded_tokens(9, 300, 5);
  const Rows rows{0, 0, tokens, {}};
  model->forward(Precision::w4a8, {&rows, 1}, {LogitRows::all, 7, true, true});
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    REQUIRE(model->logits(row).size() == 300);
    check_ranked(*model, row, 7, 1e-6);
  }
}

TEST_CASE("features are the wanted taps of every row, one after another") {
  RandomModelSpec spec = reference::small_spec();
  spec.layer_kind = spec.head_kind = WeightKind::f16;
  const RandomModel random(spec);
  const Precision precisions[] = {Precision::fp16};
  const auto model = make_cpu_model(random.file(), precisions, 2, 128, 2);
  const Tokens tokens = seeded_tokens(70, 300, 7);  // two passes
  const Rows batch[] = {{1, 0, std::span(tokens).first(5), {}}, {0, 0, tokens, {}}};
  const int taps[] = {2, 0, 3, 1};
  const auto want = reference_outputs(random, tokens, {.kv_f16 = true});
  for (const LogitRows logits : {LogitRows::none, LogitRows::last}) {
    model->forward(Precision::fp16, batch, {logits, 1, false, false, taps});
    for (std::size_t row = 0; row < 75; ++row) {
      const auto features = model->features(row);
      REQUIRE(features.size() == 4 * 64);
      const auto& streams = want.streams[row < 5 ? row : row - 5];
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(relative_error(features.subspan(64 * i, 64), streams[taps[i]]) < 1e-4);
      }
    }
    CHECK_THROWS_AS(model->features(75), std::out_of_range);
  }
  model->forward(Precision::fp16, batch, {LogitRows::last, 1});
  CHECK_THROWS_AS(model->features(0), std::out_of_range);
  const int unknown[] = {0, 4};
  CHECK_THROWS_WITH_AS(
      model->forward(Precision::fp16, batch, {LogitRows::last, 1, false, false, unknown}),
      "Tap 4 is not between 0 and 3, the final norm's output.", std::invalid_argument);
}

TEST_CASE("a reduced vocabulary computes the rows of the whole head, and speaks of tokens") {
  RandomModelSpec spec = untied_spec();
  const RandomModel whole(spec);
  for (int token = 3; token < 300; token += 1 + token % 5) spec.draft_tokens.push_back(token);
  const RandomModel reduced(spec);
  const Precision precisions[] = {Precision::w4a8};
  const auto model = make_cpu_model(reduced.file(), precisions, 1, 64, 2);
  REQUIRE(std::ranges::equal(model->draft_tokens(), spec.draft_tokens));
  CHECK(make_cpu_model(whole.file(), precisions, 1, 64, 2)->draft_tokens().empty());

  const Tokens tokens = seeded_tokens(5, 300, 5);  // also such as it cannot draft
  const Rows rows{0, 0, tokens, {}};
  const auto entries = static_cast<int>(spec.draft_tokens.size());
  model->forward(Precision::w4a8, {&rows, 1}, {LogitRows::all, entries, true, true});
  const reference::Rounding rounding{ActivationKind::i8, ActivationKind::i8, true};
  const auto want = reference_outputs(reduced, tokens, rounding).logits;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const auto logits = model->logits(row);
    CHECK(relative_error(logits, want[row]) < 0.03);
    std::set<int32_t> seen;
    for (int i = 0; i < entries; ++i) {
      const TopEntry entry = model->top(row)[i];
      const auto place = std::ranges::lower_bound(spec.draft_tokens, entry.token);
      REQUIRE((place != spec.draft_tokens.end() && *place == entry.token));
      CHECK(entry.logit == logits[place - spec.draft_tokens.begin()]);
      CHECK((i == 0 || entry.logit <= model->top(row)[i - 1].logit));
      seen.insert(entry.token);
    }
    CHECK(seen.size() == spec.draft_tokens.size());
  }
  CHECK_THROWS_AS(model->forward(Precision::w4a8, {&rows, 1}, {LogitRows::last, entries + 1}),
                  std::invalid_argument);
}

TEST_CASE("only the rows that were asked for have results") {
  const RandomModel random(reference::small_spec());
  const Precision precisions[] = {Precision::w4a8};
  const auto model = make_cpu_model(random.file(), precisions, 2, 64, 1);
  const Tokens tokens = seeded_tokens(3, 300, 5);
  const Rows batch[] = {{1, 0, tokens, {}}, {0, 0, tokens, {}}};
  model->forward(Precision::w4a8, batch, {LogitRows::last, 1, false, false});
  CHECK(model->top(0)[0].token == model->top(1)[0].token);
  CHECK_THROWS_AS(model->top(2), std::out_of_range);
  CHECK_THROWS_AS(model->log_sum(0), std::out_of_range);
  CHECK_THROWS_AS(model->logits(0), std::out_of_range);
  model->forward(Precision::w4a8, batch, {LogitRows::none, 1, false, false});
  CHECK_THROWS_AS(model->top(0), std::out_of_range);
}

TEST_CASE("memory and proof count what is stored and read") {
  const RandomModel random(reference::small_spec());
  const Precision precisions[] = {Precision::w4a8, Precision::w4a4, Precision::w4a4_g16_qkv8,
                                  Precision::fp16};
  const auto model = make_cpu_model(random.file(), precisions, 3, 33, 1);
  // 2 layers, (10 + 4 + 12 + 4... ) tiles of 16 rows: counted from the logical shapes.
  const auto tiles = [](int rows) { return (rows + 15) / 16; };
  const int64_t four_bit_groups =
      2 * (tiles(160) * 2 + tiles(64) * 3 + tiles(192) * 2 + tiles(64) * 3);
  const int64_t layer_bytes = four_bit_groups * (32 * 8 + 64);
  const int64_t head_bytes = int64_t{tiles(300)} * 2 * (32 * 16 + 32);
  const int64_t norm_bytes = 5 * 64 * 4;
  const MemoryUse memory = model->memory();
  CHECK(memory.weight_bytes.at("affine4") == layer_bytes);
  CHECK(memory.weight_bytes.at("affine8") == head_bytes);
  CHECK(memory.weight_bytes.at("f32") == norm_bytes);
  const int64_t values = four_bit_groups * 32 * 16 + int64_t{tiles(300)} * 16 * 64;
  CHECK(memory.weight_bytes.at("f16 (converted)") == 2 * values);
  CHECK(memory.kv_bytes == int64_t{3} * 48 * 2 * 2 * 16 * 2 * 2);

  const Proof w4a8 = model->proof(Precision::w4a8);
  CHECK(w4a8.bytes_per_token == layer_bytes + head_bytes + norm_bytes + head_bytes / 300);
  REQUIRE(w4a8.kernels.size() == 2);
  CHECK(w4a8.kernels[0].starts_with("affine4 x i8, "));
  CHECK(w4a8.kernels[1].starts_with("affine8 x i8, "));
  CHECK(model->proof(Precision::w4a4).kernels[0].starts_with("affine4 x u4, "));
  CHECK(model->proof(Precision::w4a4).kernels[1].starts_with("affine8 x i16, "));
  const Proof mixed = model->proof(Precision::w4a4_g16_qkv8);
  CHECK(mixed.kernels[0].starts_with("affine4 x i8, "));
  CHECK(mixed.kernels[1].starts_with("affine4 x u4g16, "));
  CHECK(mixed.compute_dtype.find("group of 16, q, k and v 8-bit") != std::string::npos);
  CHECK(model->proof(Precision::fp16).kernels[0].starts_with("f16 x f32, "));
  CHECK(w4a8.compute_dtype.starts_with("8-bit integers"));
  CHECK(w4a8.compute_dtype.ends_with("f32 sums"));
  const RandomModel rotated(reference::transformed_spec());
  CHECK(make_cpu_model(rotated.file(), precisions, 1, 16, 1)
            ->proof(Precision::w4a8)
            .compute_dtype.ends_with("f32 Hadamard transform before o and down"));
}

}  // namespace
}  // namespace specquant::cpu
