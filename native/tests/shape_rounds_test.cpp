// Shapes that are chosen by round: the output is that of plain decoding whatever is chosen.
#include <doctest/doctest.h>

#include <set>

#include "tests/decode_cast.h"
#include "tests/decode_jobs.h"
#include "tests/messages.h"

namespace specquant::decode {
namespace {

using namespace test;

constexpr const char* kChains =
    R"({"kind": "auto", "candidates": [{"kind": "chain", "gamma": 1}, {"kind": "chain", "gamma": 5}]})";
constexpr const char* kBoth =
    R"({"kind": "auto", "candidates": [{"kind": "chain", "gamma": 2},
        {"kind": "tree", "depth": 4, "top_k": 3, "nodes": 9}]})";

TEST_CASE(
    "greedy output is that of plain decoding for every drafter, whatever is chosen by round") {
  const std::vector<std::pair<std::string, const char*>> ways{
      {kSelf, kBoth},
      {kNgram, kChains},
      {drafter("model", "d"), kBoth},
      {drafter("head", "h"), kBoth},
      {drafter("head", "r"), kBoth},
      {cascade(drafter("head", "n"), kTree), kChains},
      {cascade(drafter("model", "d"), kChain), kChains},
      {cascade(kNgram, kChain), kChains}};
  std::mt19937 random(20261129);
  std::set<int> chosen_by_any;
  for (const auto& [drafting, shape] : ways) {
    int plain = 0;
    std::set<int> chosen;
    for (int trial = 0; trial < 60; ++trial) {
      FakeOptions options;
      options.order = trial % 3;
      options.disagreement = 0.1 * (trial % 8);
      const Job job = random_job(random, options);
      CAPTURE(drafting);
      CAPTURE(trial);
      Cast cast(options);
      const Method method = speculative(drafting, shape);
      const RunResult result = run(cast.target, method, job, {.drafters = cast.drafters()});
      const auto expected = reference_tokens(options, job);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(result.requests[i].tokens == expected[i]);
      }
      CHECK(cast.misplaced() == 0);
      check_counts(result, job, method.shape.nodes + method.inner_depth, false);
      REQUIRE(result.shape_choice.has_value());
      CHECK(result.shape_choice->calibration_s > 0.0);
      for (const ShapeSwitch& entry : result.shape_choice->switches) {
        chosen.insert(entry.to);
        plain += entry.to == kPlain ? 1 : 0;
      }
    }
    CHECK(plain > 30);
    CHECK(chosen.size() > 1);
    chosen_by_any.insert(chosen.begin(), chosen.end());
  }
  CHECK(chosen_by_any == std::set{kPlain, 0, 1});
}

TEST_CASE("sampled output is that of plain sampling where nothing is drawn, whatever is chosen") {
  const auto sampled = [](const std::string& method) {
    const auto json = core::parse_json(method);
    return parse_method(core::Fields(json, "method"),
                        Sampling{.warp = {.temperature = 2.0}, .seed = 4});
  };
  const Job job{.prompts = {{1, 2, 1, 2, 1}, {3, 3, 3}, {5, 6, 5, 6}},
                .arrivals = {},
                .max_new_tokens = {60, 60, 60},
                .stop_ids = {},
                .batch_size = 2};
  FakeModel model({.order = 2});
  const RunResult plain =
      run(model, sampled(R"({"precision": "fp16", "acceptance": {"kind": "sampling"}})"), job);
  const RunResult looked_up =
      run(model,
          sampled(R"({"precision": "fp16", "drafter": {"kind": "ngram"}, "shape": )" +
                  std::string(kChains) + R"(, "acceptance": {"kind": "sampling"}})"),
          job);
  for (std::size_t i = 0; i < job.prompts.size(); ++i) {
    CHECK(looked_up.requests[i].tokens == plain.requests[i].tokens);
  }
}

TEST_CASE("each round drafts the shape that the history names") {
  FakeModel model({.max_context = 512, .disagreement = 0.1});
  const Job job{.prompts = {{1, 2, 3}, {4, 5}},
                .arrivals = {},
                .max_new_tokens = {400, 400},
                .stop_ids = {},
                .batch_size = 2};
  const Method method = speculative(kSelf, kChains);
  const RunResult result = run(model, method, job);
  const std::vector<int> gammas{1, 5};
  std::size_t next = 0;
  int choice = kPlain;
  const auto& switches = result.shape_choice->switches;
  const auto& columns = result.sequence_rounds;
  int checked = 0;
  for (std::size_t i = 0; i < columns.round.size(); ++i) {
    while (next < switches.size() && switches[next].round <= columns.round[i]) {
      choice = switches[next++].to;
    }
    if (choice == kPlain) {
      CHECK(columns.drafted[i] == 0);
    } else {
      // Fewer near the end of the request.
      const int gamma = gammas[static_cast<std::size_t>(choice)];
      CHECK(columns.drafted[i] <= gamma);
      checked += columns.drafted[i] == gamma ? 1 : 0;
    }
  }
  // How often a candidate is tried depends on how long rounds took; that one is does not.
  CHECK(checked > 0);
  CHECK(next == switches.size());
}

std::string message(const std::string& shape, const std::string& drafting = kSelf) {
  return verdict_on_method(speculative_text(drafting, shape));
}

TEST_CASE("candidates that are none are refused by their place") {
  const auto of = [](const std::string& candidates) {
    return R"({"kind": "auto", "candidates": )" + candidates + "}";
  };
  CHECK(message(kBoth) == "accepted");
  check_says(message(R"({"kind": "auto"})"), "'method.shape.candidates' is missing");
  check_says(message(of("[]")), "'method.shape.candidates' must be a list of 1 to 16 shapes");
  check_says(message(of("7")), "'method.shape.candidates' must be a list");
  check_says(message(of("[7]")), "'method.shape.candidates[0]' must be an object");
  check_says(message(of(R"([{"kind": "chain", "gamma": 2}, {"kind": "chain", "gamma": 0}])")),
             "'method.shape.candidates[1].gamma' is 0");
  check_says(message(of(R"([{"kind": "none"}])")), "'method.shape.candidates[0].kind' is 'none'");
  check_says(message(of(R"([{"kind": "tree", "depth": 4, "top_k": 2, "nodes": 3}])")),
             "'method.shape.candidates[0].nodes' is 3");
  check_says(message(of(R"([{"kind": "chain", "gamma": 2, "beta": 1}])")), "unknown key 'beta'");
  check_says(message(kBoth, kNgram), "proposes chains only");
  check_says(message(kChain, cascade(kNgram, kChains)),
             "the shape of the rounds inside a cascade is fixed");
}

TEST_CASE("candidates need the room of the largest one") {
  const Method method =
      speculative(drafter("model", "d"),
                  R"({"kind": "auto", "candidates": [{"kind": "chain", "gamma": 9},
          {"kind": "tree", "depth": 2, "top_k": 20, "nodes": 12}]})");
  CHECK(method.room() == 12);
  CHECK(method.longest() == 9);
}

}  // namespace
}  // namespace specquant::decode
