// The decode loop against a model whose tokens betray wrong cache handling.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/decode_jobs.h"

namespace specquant::decode {
namespace {

using namespace test;

TEST_CASE("speculative and plain greedy output equal whole-text decoding") {
  std::mt19937 random(20261129);
  int64_t accepted = 0;
  int64_t rejected = 0;
  int cut_inside_accepted = 0;
  for (int trial = 0; trial < 300; ++trial) {
    FakeOptions options;
    options.order = trial % 3;
    options.disagreement = 0.1 * (trial % 11);
    const Job job = random_job(random, options);
    const int gamma = 1 + trial % 8;
    CAPTURE(trial);
    const auto expected = reference_tokens(options, job);
    for (const Method& method : {plain(), self_method(gamma), ngram_method(gamma)}) {
      FakeModel model(options);
      const RunResult result = run(model, method, job);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(result.requests[i].tokens == expected[i]);
      }
      check_counts(result, job, method.shape.depth);
      const auto& columns = result.sequence_rounds;
      for (std::size_t i = 0; i < columns.accepted.size(); ++i) {
        accepted += columns.accepted[i];
        rejected += columns.reached[i] - columns.accepted[i];
        if (columns.committed[i] == columns.accepted[i]) ++cut_inside_accepted;
      }
    }
  }
  // The trials have met what they are for.
  CHECK(accepted > 1000);
  CHECK(rejected > 1000);
  CHECK(cut_inside_accepted > 10);
}

TEST_CASE("a draft that always agrees commits gamma + 1 tokens a round") {
  FakeOptions options;
  options.disagreement = 0.0;
  FakeModel model(options);
  const Job job{.prompts = {{1, 2, 3}}, .arrivals = {}, .max_new_tokens = {17}, .stop_ids = {}};
  const RunResult result = run(model, self_method(3), job);
  CHECK(result.sequence_rounds.committed == std::vector{4, 4, 4, 4});
  CHECK(result.sequence_rounds.reached == std::vector{3, 3, 3, 3});
  CHECK(result.rounds.rows == std::vector{4, 4, 4, 4});
}

TEST_CASE("a round has one draft forward a step and one verify forward for the whole batch") {
  FakeOptions options;
  options.disagreement = 0.0;
  FakeModel model(options);
  const Job job{.prompts = {{1}, {2}, {3}, {4}},
                .arrivals = {},
                .max_new_tokens = {4, 4, 4, 4},
                .stop_ids = {},
                .batch_size = 4};
  const RunResult result = run(model, self_method(2), job);
  CHECK(result.rounds.rows == std::vector{12});
  CHECK(model.forwards == 4 + 2 + 1);  // prefills, draft steps, verification
}

TEST_CASE("slots are refilled in order and a prompt of one new token takes none") {
  FakeModel model;
  const Job job{.prompts = {{1}, {2}, {3}, {4}},
                .arrivals = {},
                .max_new_tokens = {5, 3, 1, 4},
                .stop_ids = {},
                .batch_size = 2};
  const RunResult result = run(model, plain(), job);
  CHECK(result.requests[0].queue_s <= result.requests[1].queue_s);
  CHECK(result.requests[1].queue_s <= result.requests[2].queue_s);
  CHECK(result.requests[2].queue_s <= result.requests[3].queue_s);
  CHECK(result.sequence_rounds.request == std::vector{0, 1, 0, 1, 0, 3, 0, 3, 3});
  CHECK(result.requests[2].round_tokens == std::vector{1});
}

TEST_CASE("no prompt starts before its arrival, whatever their order") {
  FakeModel model;
  const Job job{.prompts = {{1}, {2}, {3}},
                .arrivals = {0.05, 0.0, 0.02},
                .max_new_tokens = {3, 3, 3},
                .stop_ids = {},
                .batch_size = 2};
  const RunResult result = run(model, plain(), job);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(result.requests[i].queue_s >= 0.0);
    CHECK(result.requests[i].round_end_s[0] >= job.arrivals[i] + result.requests[i].queue_s);
  }
  // The wait for the last arrival belongs to no round.
  const double woken = job.arrivals[0] + result.requests[0].queue_s;
  const double asleep =
      std::max(result.requests[1].round_end_s.back(), result.requests[2].round_end_s.back());
  CHECK(result.decode_s <= result.wall_s - std::max(0.0, woken - asleep));
}

TEST_CASE("a shared prefill is computed once a precision and changes no token") {
  FakeModel model;
  PrefillCache cache;
  std::mt19937 random(7);
  Job job = random_job(random, {});
  job.prompts = {{1, 2, 3}, {4, 5}, {1, 2, 3}};
  job.max_new_tokens = {9, 9, 9};
  const RunResult alone = run(model, plain(), job);
  const RunResult first = run(model, plain(), job, {.cache = &cache});
  const RunResult second = run(model, self_method(3), job, {.cache = &cache});
  CHECK_FALSE(first.requests[0].ttft_shared);
  CHECK_FALSE(first.requests[1].ttft_shared);
  CHECK(first.requests[2].ttft_shared);
  CHECK(model.restores == 4);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(second.requests[i].ttft_shared);
    CHECK(first.requests[i].tokens == alone.requests[i].tokens);
    CHECK(second.requests[i].tokens == alone.requests[i].tokens);
    // The time of the one computation stands for all.
    const double seconds = cache.find(Precision::fp16, job.prompts[i], {})->seconds;
    CHECK(seconds > 0.0);
    CHECK(first.requests[i].prefill_s >= seconds);
    CHECK(second.requests[i].prefill_s >= seconds);
  }
  CHECK(cache.find(Precision::w4a16, {1, 2, 3}, {}) == nullptr);
  CHECK(cache.find(Precision::fp16, {1, 2, 3}, {.rows = LogitRows::last, .logits = true}) ==
        nullptr);
  cache.clear();
  CHECK_FALSE(run(model, plain(), job, {.cache = &cache}).requests[0].ttft_shared);
}

TEST_CASE("a long prompt is prefilled in chunks with the same result") {
  FakeOptions options;
  options.max_context = 1024;
  std::vector<int32_t> prompt;
  for (int i = 0; i < 700; ++i) prompt.push_back(i % options.vocabulary);
  FakeModel model(options);
  const Job job{.prompts = {prompt}, .arrivals = {}, .max_new_tokens = {5}, .stop_ids = {}};
  CHECK(run(model, plain(), job).requests[0].tokens == reference_tokens(options, job)[0]);
}

// A drafter of trees: what the loop must serve though no such shape is registered yet.
class TreeDrafter : public Drafter {
 public:
  explicit TreeDrafter(Model& oracle) : oracle_(oracle) {}
  void begin(int, std::span<const int32_t>, std::span<const float>) override {}
  void rewind(int, int) override {}
  void verified(int, std::span<const int> path) override {
    accepted += static_cast<int>(path.size());
  }
  // The right path stands behind wrong siblings, so that its cache entries must be moved.
  void propose(std::span<const Draftable> sequences, const Drafting&,
               std::span<Proposal> proposals) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::vector<int32_t> text(sequences[i].tokens.begin(), sequences[i].tokens.end());
      int parent = 0;
      for (int depth = 0; depth < std::min(3, sequences[i].depth); ++depth) {
        const Rows rows{.slot = 0, .base = 0, .tokens = text};
        oracle_.forward(Precision::fp16, std::span(&rows, 1), {});
        const int32_t right = oracle_.top(0)[0].token;
        proposals[i].add((right + 1) % oracle_.shape().vocabulary, parent);
        if (depth == 2) break;
        proposals[i].add(right, parent);
        parent = static_cast<int>(proposals[i].tokens.size());
        text.push_back(right);
      }
    }
  }
  int accepted = 0;

 private:
  Model& oracle_;
};

TEST_CASE("a drafter of trees needs no change to the loop") {
  FakeModel model;
  FakeModel oracle;
  TreeDrafter drafter(oracle);
  GreedyAcceptance acceptance;
  const Job job{.prompts = {{1, 2}, {3}, {4, 4}},
                .arrivals = {},
                .max_new_tokens = {20, 11, 7},
                .stop_ids = {},
                .batch_size = 2};
  const RunResult result = decode({.model = model,
                                   .precision = Precision::fp16,
                                   .shape = {.depth = 3, .top_k = 2, .nodes = 5},
                                   .drafter = &drafter,
                                   .acceptance = acceptance},
                                  job);
  const auto expected = reference_tokens({}, job);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(result.requests[i].tokens == expected[i]);
  CHECK(model.compactions > 0);
  CHECK(result.sequence_rounds.accepted[0] == 2);
  CHECK(result.sequence_rounds.reached[0] == 3);
  CHECK(drafter.accepted > 10);
}

}  // namespace
}  // namespace specquant::decode
