// Sampling: the output of every way of drafting is distributed as the target's own.
#include "decode/sampling.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "decode/decoder.h"
#include "decode/ngram_drafter.h"
#include "decode/self_drafter.h"
#include "tests/chi_square.h"
#include "tests/fake_model.h"

namespace specquant::decode {
namespace {

using test::chi_square_excess;
using test::FakeModel;
using test::FakeOptions;
using test::kLuck;

constexpr int kVocabulary = 8;
constexpr Sampling kSampling{.warp = {.temperature = 3.0, .top_p = 0.9}, .seed = 20261129};

// Drafts from logits that only loosely follow those of the target.
class OpinionDrafter : public Drafter {
 public:
  void begin(int, std::span<const int32_t>, std::span<const float>) override {}
  void rewind(int, int) override {}
  void verified(int, std::span<const int>) override {}

 protected:
  static std::vector<float> opinion(std::span<const int32_t> text, std::size_t size) {
    uint64_t seed = 0;
    for (const int32_t token : text) seed = test::mix(seed, static_cast<uint64_t>(token));
    std::vector<float> logits;
    for (std::size_t i = 0; i < size; ++i) {
      logits.push_back(static_cast<float>(test::mix(seed, i + 1) % 64) / 8.0F);
    }
    return logits;
  }
};

// A chain over a reduced vocabulary.
class ReducedDrafter : public OpinionDrafter {
 public:
  void propose(std::span<const Draftable> sequences, const Drafting& drafting,
               std::span<Proposal> proposals) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::vector<int32_t> text(sequences[i].tokens.begin(), sequences[i].tokens.end());
      Proposal& proposal = proposals[i];
      for (int step = 0; step < std::min(drafting.shape.depth, sequences[i].depth); ++step) {
        const std::vector<float> logits = opinion(text, vocabulary_.size());
        const Place place{sequences[i].request, static_cast<int>(text.size())};
        const TopEntry none;
        text.push_back(drafting.choice.choose(place, {std::span(&none, 1), logits, vocabulary_}));
        proposal.add(text.back(), step);
        proposal.set_logits(step, logits);
        proposal.vocabulary = vocabulary_;
        proposal.drawn = true;
      }
    }
  }

 private:
  std::vector<int32_t> vocabulary_{1, 3, 4, 6};
};

// A tree of its two best guesses a row.
class TwoGuesses : public OpinionDrafter {
 public:
  void propose(std::span<const Draftable> sequences, const Drafting& drafting,
               std::span<Proposal> proposals) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::vector<std::vector<int32_t>> texts{
          {sequences[i].tokens.begin(), sequences[i].tokens.end()}};
      const std::size_t longest = texts[0].size() + static_cast<std::size_t>(std::min(
                                                        drafting.shape.depth, sequences[i].depth));
      for (std::size_t row = 0; row < texts.size(); ++row) {
        if (texts[row].size() == longest) continue;
        const std::vector<float> logits = opinion(texts[row], kVocabulary);
        std::vector<int32_t> order{0, 1, 2, 3, 4, 5, 6, 7};
        std::ranges::stable_sort(order, std::greater<>(), [&](int32_t token) {
          return logits[static_cast<std::size_t>(token)];
        });
        for (int child = 0; child < 2; ++child) {
          proposals[i].add(order[static_cast<std::size_t>(child)], static_cast<int>(row));
          texts.push_back(texts[row]);
          texts.back().push_back(order[static_cast<std::size_t>(child)]);
        }
      }
    }
  }
};

const std::vector<int32_t> kPrompt{2, 5, 2};

// Probabilities of the three tokens after the prompt, as one index in base 8.
std::vector<double> exact_law(const Warp& warp) {
  FakeModel model({.vocabulary = kVocabulary});
  std::vector<double> law;
  const auto after = [&](const std::vector<int32_t>& text) {
    const Rows rows{.slot = 0, .base = 0, .tokens = text};
    model.forward(Precision::fp16, std::span(&rows, 1), {.logits = true});
    SamplingDistribution distribution;
    distribution.assign(model.logits(0), warp);
    return distribution;
  };
  std::vector<int32_t> text = kPrompt;
  const SamplingDistribution first = after(text);
  for (int32_t a = 0; a < kVocabulary; ++a) {
    text.push_back(a);
    const SamplingDistribution second = after(text);
    for (int32_t b = 0; b < kVocabulary; ++b) {
      text.push_back(b);
      const SamplingDistribution third = after(text);
      for (int32_t c = 0; c < kVocabulary; ++c) {
        law.push_back(first.probability(a) * second.probability(b) * third.probability(c));
      }
      text.pop_back();
    }
    text.pop_back();
  }
  return law;
}

struct Sampled {
  std::vector<std::vector<int32_t>> tokens;
  int64_t accepted = 0, refused = 0;
};

Sampled sample(Acceptance& acceptance, Drafter* drafter, const Shape& shape, Model& model,
               int batch_size, int requests, int new_tokens) {
  Job job;
  job.prompts.assign(static_cast<std::size_t>(requests), kPrompt);
  job.max_new_tokens.assign(static_cast<std::size_t>(requests), new_tokens);
  job.batch_size = batch_size;
  const RunResult result = decode({.model = model,
                                   .precision = Precision::fp16,
                                   .shape = shape,
                                   .drafter = drafter,
                                   .acceptance = acceptance},
                                  job);
  Sampled sampled;
  for (const RequestResult& request : result.requests) sampled.tokens.push_back(request.tokens);
  const SequenceRoundColumns& columns = result.sequence_rounds;
  for (std::size_t i = 0; i < columns.accepted.size(); ++i) {
    sampled.accepted += columns.accepted[i];
    sampled.refused += columns.reached[i] - columns.accepted[i];
  }
  return sampled;
}

constexpr FakeOptions kModel{.vocabulary = kVocabulary, .disagreement = 0.7};
constexpr Shape kNone{};
constexpr Shape kChain{.depth = 2, .top_k = 1, .nodes = 2};
constexpr Shape kTree{.depth = 2, .top_k = 2, .nodes = 6};

// Excess of chi-square of the first three tokens of many requests over the exact law. The first is
// the prefill's, the next two are drafted.
double excess_of(FakeModel& model, Acceptance& acceptance, Drafter* drafter, const Shape& shape) {
  const Sampled sampled = sample(acceptance, drafter, shape, model, 8, 40000, 5);
  std::vector<int64_t> counts(kVocabulary * kVocabulary * kVocabulary, 0);
  for (const std::vector<int32_t>& tokens : sampled.tokens) {
    ++counts[static_cast<std::size_t>((tokens[0] * kVocabulary + tokens[1]) * kVocabulary +
                                      tokens[2])];
  }
  if (drafter != nullptr) {
    CHECK(sampled.accepted > 5000);
    CHECK(sampled.refused > 5000);
  }
  return chi_square_excess(counts, exact_law(kSampling.warp));
}

TEST_CASE("output of every way of drafting has the target's joint distribution") {
  SamplingAcceptance acceptance(kSampling);
  FakeModel model(kModel);
  CHECK(excess_of(model, acceptance, nullptr, kNone) < kLuck);
  SelfDrafter self(model, Precision::w4a4);
  CHECK(excess_of(model, acceptance, &self, kChain) < kLuck);
  ReducedDrafter reduced;
  CHECK(excess_of(model, acceptance, &reduced, kChain) < kLuck);
  TwoGuesses guesses;
  CHECK(excess_of(model, acceptance, &guesses, kTree) < kLuck);
}

// In place of a refused token it draws from the target's whole distribution.
class NoResidual : public SamplingAcceptance {
 public:
  using SamplingAcceptance::SamplingAcceptance;

 protected:
  void leave_residual(SamplingDistribution&, const SamplingDistribution&) override {}
};

// Tries the siblings without setting the probability of the refused ones to 0.
class UndiminishedSiblings : public Acceptance {
 public:
  Want want() const override { return {.rows = LogitRows::all, .top_k = 1, .logits = true}; }
  TokenChoice& draft_choice() override { return top_; }
  int32_t first(Place, const TargetRow& row) override { return draw(row.logits); }
  void decide(Place, const Proposal& proposal, const TargetRows& target,
              Verdict& verdict) override {
    verdict.path.clear();
    for (bool extended = true; extended;) {
      const int row = verdict.end();
      verdict.next = draw(target.logits(row));
      for (int child = row + 1; child < proposal.rows(); ++child) {
        const auto node = static_cast<std::size_t>(child) - 1;
        if (proposal.parents[node] != row) continue;
        if (draw(target.logits(row)) != proposal.tokens[node]) continue;
        verdict.next = proposal.tokens[node];
        break;
      }
      extended = verdict.follow(proposal);
    }
  }

 private:
  TopChoice top_;
  int draws_ = 0;
  int32_t draw(std::span<const float> logits) {
    SamplingDistribution distribution;
    distribution.assign(logits, kSampling.warp);
    return distribution.draw(uniform(9, {0, draws_++}, Purpose::token));
  }
};

TEST_CASE("the test of the distribution fails where the residual is computed wrongly") {
  FakeModel model(kModel);
  NoResidual acceptance(kSampling);
  ReducedDrafter reduced;
  CHECK(excess_of(model, acceptance, &reduced, kChain) > 10 * kLuck);
  UndiminishedSiblings undiminished;
  TwoGuesses guesses;
  CHECK(excess_of(model, undiminished, &guesses, kTree) > 10 * kLuck);
}

TEST_CASE("drafters that draw nothing leave the output of plain sampling, token for token") {
  SamplingAcceptance acceptance(kSampling);
  const FakeOptions options{.vocabulary = kVocabulary, .order = 2};
  const auto tokens = [&](Drafter* drafter, const Shape& shape) {
    FakeModel model(options);
    return sample(acceptance, drafter, shape, model, 4, 50, 40);
  };
  const Sampled plain = tokens(nullptr, kNone);
  NgramDrafter ngram(1, 3, 4);
  const Sampled looked_up = tokens(&ngram, {.depth = 4, .top_k = 1, .nodes = 4});
  CHECK(looked_up.tokens == plain.tokens);
  CHECK(looked_up.accepted > 100);
  TwoGuesses guesses;
  CHECK(tokens(&guesses, kTree).tokens == plain.tokens);
}

TEST_CASE("outcomes do not depend on the batch") {
  SamplingAcceptance acceptance(kSampling);
  ReducedDrafter reduced;
  const auto tokens = [&](int batch_size) {
    FakeModel model({.vocabulary = kVocabulary});
    return sample(acceptance, &reduced, kChain, model, batch_size, 30, 25).tokens;
  };
  const auto alone = tokens(1);
  CHECK(alone[0] != alone[1]);
  CHECK(tokens(3) == alone);
  CHECK(tokens(8) == alone);
}

}  // namespace
}  // namespace specquant::decode
