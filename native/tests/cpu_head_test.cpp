// Draft heads on the CPU: against a float64 reference, shape invariance, and whose they are.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <string>

#include "core/errors.h"
#include "cpu/model.h"
#include "tests/draft_heads.h"
#include "tests/messages.h"
#include "tests/model_rows.h"
#include "tests/reference_model.h"
#include "tests/relative_error.h"

namespace specquant::cpu {
namespace {

using reference::frequent_tokens;
using reference::random_sequence;
using reference::RandomModel;
using reference::RandomModelSpec;
using reference::Sequence;
using test::check_says;
using test::Row;

constexpr int kHidden = 64;
constexpr int kVocabulary = 300;
constexpr Precision kPrecisions[] = {Precision::fp16, Precision::bf16, Precision::w4a16,
                                     Precision::w4a8, Precision::w4a4};

// 8-bit embeddings would lie on the very edges between the codes of 8-bit activations.
RandomModelSpec target_spec() {
  RandomModelSpec spec = reference::small_spec();
  spec.head_kind = WeightKind::affine4;
  return spec;
}

const RandomModel& target() {
  static const RandomModel model(target_spec());
  return model;
}

RandomModelSpec eagle2_spec() {
  RandomModelSpec spec = reference::eagle2_head(target_spec(), target());
  spec.seed = 21;
  return spec;
}

RandomModelSpec eagle3_spec() {
  RandomModelSpec spec = reference::eagle3_head(eagle2_spec());
  spec.seed = 22;
  return spec;
}

RandomModelSpec eagle2_own_spec() {
  RandomModelSpec spec = reference::with_all_of_its_own(eagle2_spec());
  spec.seed = 23;
  return spec;
}

// Rows of the target's head.
RandomModelSpec eagle2_reduced_spec() {
  RandomModelSpec spec = eagle2_spec();
  spec.seed = 24;
  spec.draft_tokens = frequent_tokens(kVocabulary);
  return spec;
}

// Narrower than the target, an embedding of its own, every token.
RandomModelSpec eagle3_narrow_spec() {
  RandomModelSpec spec = eagle3_spec();
  spec.seed = 25;
  spec.shape.hidden = 32;
  spec.shape.layers = 2;
  spec.own_embedding = true;
  spec.draft_tokens.clear();
  return spec;
}

RandomModelSpec eagle3_normed_spec() {
  RandomModelSpec spec = eagle3_spec();
  spec.seed = 26;
  spec.more_metadata["norm_before_residual"] = true;
  return spec;
}

std::vector<RandomModelSpec> all_specs() {
  return {eagle2_spec(), eagle2_own_spec(),    eagle2_reduced_spec(),
          eagle3_spec(), eagle3_narrow_spec(), eagle3_normed_spec()};
}

std::unique_ptr<CpuModel> build(const RandomModel& head, int threads = 2,
                                const KernelTable& table = kernels()) {
  return std::make_unique<CpuModel>(head.file(), kPrecisions, 4, 128,
                                    std::make_shared<ThreadPool>(threads), table, &target().file());
}

// Relative errors of a row's logits and of its feature (the stream behind the last layer).
std::vector<double> row_errors(const RandomModel& head, Precision precision, int width,
                               const reference::Rounding& rounding) {
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

// Rows with the feature that the head gives itself.
std::vector<Row> forward(Model& model, Precision precision, const std::vector<Rows>& batch) {
  const int taps[] = {model.shape().layers};
  return test::forward(model, precision, batch, taps);
}

TEST_CASE("a row of a head is bitwise the same in any batch, on any threads and instruction set") {
  for (const RandomModelSpec& spec : all_specs()) {
    CAPTURE(spec.seed);
    const RandomModel head(spec);
    const Sequence fed = random_sequence(70, head.shape().feature_width, 8);
    const Sequence own = random_sequence(33, head.shape().hidden, 9);
    for (const Precision precision : kPrecisions) {
      CAPTURE(std::string(name_of(precision)));
      const auto model = build(head);
      std::vector<Row> alone, alone_own;
      for (int i = 0; i < fed.size(); ++i) {
        alone.push_back(forward(*model, precision, {fed.rows(0, i, 1)})[0]);
      }
      for (int i = 0; i < own.size(); ++i) {
        alone_own.push_back(forward(*model, precision, {own.rows(1, i, 1)})[0]);
      }
      for (const char* isa : {"scalar", "avx2", "avx512"}) {
        if (kernels(isa) == nullptr) continue;
        if (precision == Precision::bf16 && kernels(isa)->native_bf16 != kernels().native_bf16) {
          continue;  // the processor's own bf16 instruction sums in its own order
        }
        CAPTURE(isa);
        const auto other = build(head, isa[0] == 's' ? 1 : 3, *kernels(isa));
        CHECK(forward(*other, precision, {fed.rows(2, 0, 70)}) == alone);
        // Both kinds of features in one batch, in a pass of many rows and in one of few.
        for (const auto& [first, count] : {std::pair{0, 33}, {10, 3}}) {
          if (first > 0) forward(*other, precision, {own.rows(3, 0, first), fed.rows(2, 0, first)});
          const std::vector<Row> mixed =
              forward(*other, precision, {own.rows(3, first, count), fed.rows(2, first, count)});
          CHECK(std::equal(mixed.begin(), mixed.begin() + count, alone_own.begin() + first));
          CHECK(std::equal(mixed.begin() + count, mixed.end(), alone.begin() + first));
        }
      }
    }
  }
}

// Drafting as a head does it: the root's features are the target's, a node's feature is its
// parent's.
TEST_CASE("a tree of a head grown over forwards equals each root path decoded plainly") {
  for (const RandomModelSpec& spec : {eagle2_spec(), eagle3_spec()}) {
    const RandomModel head(spec);
    const auto model = build(head);
    const Sequence prompt = random_sequence(20, head.shape().feature_width, 10);
    std::mt19937 random(11);
    for (const Precision precision : {Precision::fp16, Precision::w4a8}) {
      const std::vector<Row> root = forward(*model, precision, {prompt.rows(0, 0, 20)});
      const auto feature_of = [](const Row& row) {
        return std::vector<float>(row.values.end() - kHidden, row.values.end());
      };
      std::vector<int32_t> tokens;
      std::vector<uint64_t> words;
      std::vector<std::vector<float>> inputs;
      std::vector<Row> nodes;
      for (int level = 0; level < 4; ++level) {
        const std::size_t begin = nodes.size();
        std::vector<float> features;
        for (int i = 0; i < 5; ++i) {
          const auto node = static_cast<int>(tokens.size());
          const int parent = level == 0 ? -1 : static_cast<int>(random() % begin);
          tokens.push_back(static_cast<int32_t>(random() % kVocabulary));
          words.push_back((parent < 0 ? 0 : words[parent]) | uint64_t{1} << node);
          inputs.push_back(feature_of(parent < 0 ? root.back() : nodes[parent]));
          features.insert(features.end(), inputs.back().begin(), inputs.back().end());
        }
        const Rows rows{0,
                        20 + static_cast<int>(begin),
                        std::span(tokens).subspan(begin),
                        std::span(words).subspan(begin),
                        20,
                        features};
        const std::vector<Row> grown = forward(*model, precision, {rows});
        nodes.insert(nodes.end(), grown.begin(), grown.end());
      }
      for (std::size_t node = 0; node < nodes.size(); ++node) {
        forward(*model, precision, {prompt.rows(1, 0, 20)});
        Row last;
        int position = 20;
        for (uint64_t rest = words[node]; rest != 0; rest &= rest - 1) {
          const int step = std::countr_zero(rest);
          const Rows rows{1, position++, std::span(tokens).subspan(step, 1), {}, -1, inputs[step]};
          last = forward(*model, precision, {rows})[0];
        }
        CHECK(last == nodes[node]);
      }
    }
  }
}

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
  RandomModelSpec other = reference::small_spec();
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
