// Scores of given tokens against forwards over the whole text.
#include "decode/score.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "decode/distribution.h"
#include "tests/fake_model.h"

namespace specquant::decode {
namespace {

using namespace test;

TEST_CASE("scores equal whole-text forwards, with one slot and with two") {
  std::mt19937 random(5);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 150; ++i) tokens.push_back(static_cast<int32_t>(random() % 13));
  // Only fp16 of the fake betrays entries of another precision, so it takes both parts.
  for (const auto& [precision, reference] :
       {std::pair{Precision::w4a4, Precision::fp16}, std::pair{Precision::fp16, Precision::w4a4}}) {
    for (const int max_batch : {1, 2}) {
      FakeOptions options;
      options.max_batch = max_batch;
      options.max_context = 160;
      FakeModel model(options);
      const ScoredSequence scored = score(model, max_batch, precision, reference, tokens);
      REQUIRE(scored.top1.size() == 149);
      for (const std::size_t i : {0U, 1U, 63U, 64U, 100U, 148U}) {
        const auto logits_at = [&](Precision computed) {
          FakeModel fresh(options);
          const Rows rows{.slot = 0, .base = 0, .tokens = std::span(tokens).first(i + 1)};
          fresh.forward(computed, std::span(&rows, 1), {.logits = true});
          const auto logits = fresh.logits(0);
          return std::vector<float>(logits.begin(), logits.end());
        };
        const auto own_logits = logits_at(precision);
        const auto reference_logits = logits_at(reference);
        const Distribution own(own_logits);
        const Distribution other(reference_logits);
        CHECK(scored.top1[i] == own.top());
        CHECK(scored.logprob[i] == own.log_probability(tokens[i + 1]));
        CHECK(scored.top1_logprob[i] == own.log_probability(own.top()));
        CHECK(scored.ref_top1[i] == other.top());
        CHECK(scored.ref_logprob[i] == other.log_probability(tokens[i + 1]));
        CHECK(scored.margin[i] == other.margin());
        CHECK(scored.kl[i] == other.divergence(own));
      }
    }
  }
  FakeModel model;
  CHECK(score(model, 8, Precision::fp16, std::nullopt, std::vector<int32_t>{3}).top1.empty());
  CHECK(score(model, 8, Precision::fp16, std::nullopt, std::vector<int32_t>{3, 4}).kl.empty());
}

}  // namespace
}  // namespace specquant::decode
