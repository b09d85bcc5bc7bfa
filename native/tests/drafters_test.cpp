// Every drafter against models whose tokens betray wrong cache handling and wrong features.
#include <doctest/doctest.h>

#include "decode/head_drafter.h"
#include "decode/model_drafter.h"
#include "tests/decode_cast.h"
#include "tests/decode_jobs.h"

namespace specquant::decode {
namespace {

using namespace test;

struct Named {
  std::string name;
  Method method;
};

std::vector<Named> every_way() {
  std::vector<Named> ways;
  for (const char* shape : {kChain, kTree}) {
    const std::string in = std::string(" in ") + shape;
    ways.push_back({"self" + in, speculative(kSelf, shape)});
    ways.push_back({"model" + in, speculative(drafter("model", "d"), shape)});
    ways.push_back({"head" + in, speculative(drafter("head", "h"), shape)});
    ways.push_back({"head of three taps" + in, speculative(drafter("head", "r"), shape)});
    const auto inside = [&](const std::string& name, const std::string& inner) {
      ways.push_back({"cascade of " + name + in,
                      speculative(cascade(inner, shape), R"({"kind": "chain", "gamma": 6})")});
    };
    inside("a head", drafter("head", "n"));
    inside("a model", drafter("model", "d"));
    inside("self", kSelf);
  }
  const std::string six = R"({"kind": "chain", "gamma": 6})";
  ways.push_back({"cascade of prompt lookup", speculative(cascade(kNgram, kChain), six)});
  const std::string two = R"({"kind": "cascade", "id": "d", "precision": "w4a4", "inner": )" +
                          cascade(drafter("head", "n"), kTree) + R"(, "inner_shape": )" + kChain +
                          "}";
  ways.push_back({"two cascades", speculative(two, six)});
  return ways;
}

int total(const std::vector<int>& column) {
  int sum = 0;
  for (const int count : column) sum += count;
  return sum;
}

TEST_CASE("every drafter gives plain output, in batches, with caches that plain decoding leaves") {
  std::mt19937 random(20261130);
  for (const Named& way : every_way()) {
    int accepted = 0;
    int refused = 0;
    for (int trial = 0; trial < 60; ++trial) {
      FakeOptions options;
      options.order = trial % 3;
      options.disagreement = 0.1 * (trial % 8);
      const Job job = random_job(random, options);
      CAPTURE(way.name);
      CAPTURE(trial);
      Cast cast(options);
      const RunResult result = run(cast.target, way.method, job, {.drafters = cast.drafters()});
      const auto expected = reference_tokens(options, job);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(result.requests[i].tokens == expected[i]);
      }
      CHECK(cast.misplaced() == 0);
      check_counts(result, job, way.method.shape.nodes + way.method.inner_depth,
                   way.method.shape.is_chain());
      accepted += total(result.sequence_rounds.accepted);
      refused += total(result.sequence_rounds.reached) - total(result.sequence_rounds.accepted);
    }
    CHECK(accepted > 300);
    CHECK(refused > 100);
  }
}

TEST_CASE("the target's cache is the same as after plain decoding") {
  const Job job{
      .prompts = {{3, 1, 4, 1, 5}}, .arrivals = {}, .max_new_tokens = {50}, .stop_ids = {}};
  Cast plain({});
  run(plain.target, method_of(R"({"precision": "fp16"})"), job);
  for (const Named& way : every_way()) {
    CAPTURE(way.name);
    Cast cast({});
    const RunResult result = run(cast.target, way.method, job, {.drafters = cast.drafters()});
    // The last round is not moved into place: nobody reads it.
    const int length = 5 + 50 - result.requests[0].round_tokens.back() - 1;
    CHECK(cast.target.cached(0, length) == plain.target.cached(0, length));
  }
}

TEST_CASE("a drafter that agrees has its whole proposal taken, at one forward a step") {
  FakeOptions options;
  options.disagreement = 0.0;
  const Job job{.prompts = {{1, 2, 3}, {4, 5}},
                .arrivals = {},
                .max_new_tokens = {16, 16},
                .stop_ids = {},
                .batch_size = 2};
  for (const auto& [kind, id] : {std::pair{"model", "d"}, std::pair{"head", "h"}}) {
    CAPTURE(kind);
    Cast cast(options);
    const RunResult result = run(cast.target, speculative(drafter(kind, id), kChain), job,
                                 {.drafters = cast.drafters()});
    CHECK(result.sequence_rounds.committed == std::vector{5, 5, 5, 5, 5, 5});
    const FakeModel& model = id == std::string("d") ? cast.d : cast.h;
    CHECK(model.forwards == 2 + 3 * 4);  // prefills, then a forward a step
    CHECK(cast.target.forwards == 2 + 3);
  }
}

TEST_CASE("a tree holds what the drafter finds most likely, and pays where its top token fails") {
  int chain = 0;
  int tree = 0;
  std::mt19937 random(5);
  for (int trial = 0; trial < 30; ++trial) {
    FakeOptions options;
    options.disagreement = 1.0;
    options.vocabulary = 5;
    const Job job = random_job(random, options);
    for (const char* shape : {kChain, R"({"kind": "tree", "depth": 4, "top_k": 4, "nodes": 40})"}) {
      Cast cast(options);
      const RunResult result = run(cast.target, speculative(drafter("model", "d"), shape), job,
                                   {.drafters = cast.drafters()});
      (shape == kChain ? chain : tree) += static_cast<int>(result.rounds.rows.size());
    }
  }
  CHECK(tree < chain);
}

TEST_CASE("a cascade reports its inner rounds, and they make up what it proposes") {
  std::mt19937 random(9);
  for (const double disagreement : {0.0, 0.4}) {
    FakeOptions options;
    options.disagreement = disagreement;
    const Job job = random_job(random, options);
    Cast cast(options);
    const RunResult result =
        run(cast.target,
            speculative(cascade(drafter("head", "n"), disagreement == 0.0 ? kChain : kTree),
                        R"({"kind": "chain", "gamma": 6})"),
            job, {.drafters = cast.drafters()});
    REQUIRE(result.levels.has_value());
    const LevelColumns& levels = *result.levels;
    std::vector<int> proposed(job.prompts.size(), 0);
    std::vector<int> committed(job.prompts.size(), 0);
    for (std::size_t i = 0; i < levels.request.size(); ++i) {
      committed[static_cast<std::size_t>(levels.request[i])] += levels.committed[i];
      CHECK(levels.committed[i] == levels.accepted[i] + 1);
      CHECK(levels.reached[i] >= levels.accepted[i]);
      CHECK(levels.drafted[i] >= levels.reached[i]);
    }
    for (std::size_t i = 0; i < result.sequence_rounds.request.size(); ++i) {
      proposed[static_cast<std::size_t>(result.sequence_rounds.request[i])] +=
          result.sequence_rounds.drafted[i];
    }
    CHECK(committed == proposed);
    if (disagreement == 0.0) CHECK(levels.accepted == levels.drafted);
  }
  Cast cast({});
  const Job job{.prompts = {{1}}, .arrivals = {}, .max_new_tokens = {9}, .stop_ids = {}};
  CHECK_FALSE(run(cast.target, speculative(kSelf, kChain), job).levels.has_value());
}

// Takes the second best token, as a sampler might, and notes where.
class SecondChoice : public TokenChoice {
 public:
  bool draws() const override { return true; }
  int32_t choose(Place place, const DraftRow& row) override {
    places.push_back(place.position);
    std::size_t best = 0;
    for (std::size_t i = 1; i < row.logits.size(); ++i) {
      if (row.logits[i] > row.logits[best]) best = i;
    }
    const std::size_t entry = (best + 1) % row.logits.size();
    return row.vocabulary.empty() ? static_cast<int32_t>(entry) : row.vocabulary[entry];
  }
  std::vector<int> places;
};

TEST_CASE("a chain's tokens may be drawn; the proposal then keeps what they were drawn from") {
  Cast cast({});
  const std::vector<int32_t> tokens{1, 2, 3, 4};
  const std::span<const int32_t> prompt = std::span(tokens).first(3);
  const Draftable sequence{.request = 7, .slot = 0, .tokens = tokens, .depth = 10};
  const auto check = [&](Drafter& drafter, std::span<const float> features) {
    SecondChoice choice;
    std::vector<Proposal> proposals(1);
    drafter.begin(0, prompt, features);
    drafter.propose(std::span(&sequence, 1),
                    {.shape = {.depth = 3, .top_k = 1, .nodes = 3}, .choice = choice}, proposals);
    const Proposal& proposal = proposals[0];
    CHECK(choice.places == std::vector{4, 5, 6});
    CHECK(proposal.drawn);
    REQUIRE(proposal.tokens.size() == 3);
    for (int row = 0; row < 3; ++row) {
      const auto logits = proposal.logits_after(row);
      REQUIRE_FALSE(logits.empty());
      const auto best = std::ranges::max_element(logits) - logits.begin();
      const auto entry = static_cast<int32_t>((best + 1) % static_cast<long>(logits.size()));
      CHECK(proposal.tokens[static_cast<std::size_t>(row)] == proposal.token_of(entry));
      CHECK(proposal.entry_of(proposal.token_of(entry)) == entry);
    }
    CHECK(proposal.logits_after(3).empty());
  };
  ModelDrafter model(cast.d, Precision::w4a4, 1);
  check(model, {});
  prefill(cast.target, Precision::fp16, 0, prompt, {});
  const std::vector<int> taps{0, 2, 4};
  const Prefilled prefilled = prefill(cast.target, Precision::fp16, 0, prompt, {.taps = taps});
  HeadDrafter head(cast.r, Precision::w4a4, taps, 1);
  check(head, prefilled.features);
  CHECK(cast.misplaced() == 0);
}

TEST_CASE("a shared prefill keeps the features that a head asks for") {
  Cast cast({});
  PrefillCache cache;
  const Job job{.prompts = {{1, 2, 3}}, .arrivals = {}, .max_new_tokens = {20}, .stop_ids = {}};
  const auto ran = [&](const Method& method) {
    return run(cast.target, method, job, {.cache = &cache, .drafters = cast.drafters()})
        .requests[0];
  };
  const Method plain = method_of(R"({"precision": "fp16"})");
  const Method head = speculative(drafter("head", "h"), kChain);
  const Method other = speculative(drafter("head", "r"), kTree);
  const std::vector<int32_t> tokens = ran(plain).tokens;
  CHECK_FALSE(ran(head).ttft_shared);  // the first that needs them
  CHECK_FALSE(ran(other).ttft_shared);
  for (const Method& method : {plain, head, other}) {
    const RequestResult request = ran(method);
    CHECK(request.ttft_shared);
    CHECK(request.tokens == tokens);
  }
  CHECK(cast.misplaced() == 0);
}

}  // namespace
}  // namespace specquant::decode
