// Shape invariance of draft heads: a row is bitwise the same however it is computed.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/cpu_heads.h"
#include "tests/model_rows.h"

namespace specquant::cpu {
namespace {

using namespace reference;
using test::Row;

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

}  // namespace
}  // namespace specquant::cpu
