// The decode loop and its parts against a model whose tokens betray wrong cache handling.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "core/errors.h"
#include "decode/distribution.h"
#include "decode/score.h"
#include "tests/decode_jobs.h"

namespace specquant::decode {
namespace {

using namespace test;

Method plain() { return method_of(R"({"precision": "fp16"})"); }

Method self_method(int gamma) {
  return method_of(R"({"precision": "fp16", "drafter": {"kind": "self", "precision": "w4a4"},
                       "shape": {"kind": "chain", "gamma": )" +
                   std::to_string(gamma) + "}}");
}

Method ngram_method(int gamma) {
  return method_of(R"({"precision": "fp16", "drafter": {"kind": "ngram"},
                       "shape": {"kind": "chain", "gamma": )" +
                   std::to_string(gamma) + "}}");
}

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

TEST_CASE("probabilities, margin and divergence follow their definitions") {
  const std::vector<float> a{1.0F, 3.0F, 3.0F, -2.0F};
  const std::vector<float> b{0.5F, 1.0F, 2.0F, 0.0F};
  const Distribution p(a);
  const Distribution q(b);
  CHECK(p.top() == 1);
  CHECK(p.margin() == 0.0);
  CHECK(q.margin() == 1.0);
  double sum = 0.0;
  for (const float logit : a) sum += std::exp(static_cast<double>(logit));
  CHECK(p.probability(0) == doctest::Approx(std::exp(1.0) / sum).epsilon(1e-6));
  double divergence = 0.0;
  for (int i = 0; i < 4; ++i) {
    divergence += p.probability(i) * (std::log(p.probability(i)) - std::log(q.probability(i)));
  }
  CHECK(p.divergence(q) == doctest::Approx(divergence).epsilon(1e-6));
  CHECK(p.divergence(p) == 0.0);
}

TEST_CASE("a whole vocabulary's probabilities follow their definitions") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 6.0F);
  std::vector<float> a(4099);  // a few more than whole vectors
  std::vector<float> b(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = normal(random);
    b[i] = a[i] + 0.2F * normal(random);
  }
  a[5] = -1000.0F;  // its exponential is zero in single precision
  const auto log_sum = [](const std::vector<float>& logits) {
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    return std::log(sum);
  };
  const Distribution p(a);
  const Distribution q(b);
  double divergence = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double own = static_cast<double>(a[i]) - log_sum(a);
    divergence += std::exp(own) * (own - (static_cast<double>(b[i]) - log_sum(b)));
  }
  CHECK(p.log_probability(3) ==
        doctest::Approx(static_cast<double>(a[3]) - log_sum(a)).epsilon(1e-7));
  CHECK(p.divergence(q) == doctest::Approx(divergence).epsilon(1e-6));
  CHECK(p.divergence(p) == 0.0);
}

std::vector<TraceRow> traced(const Method& method, const Job& job, RunResult& result) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("decode_trace_" + std::to_string(getpid())))
          .string();
  FakeModel model;
  {
    TraceWriter trace(path);
    result = run(model, method, job, {.trace = &trace});
  }
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  REQUIRE(bytes.size() % sizeof(TraceRow) == 0);
  std::vector<TraceRow> rows(bytes.size() / sizeof(TraceRow));
  std::memcpy(rows.data(), bytes.data(), bytes.size());
  return rows;
}

TEST_CASE("the token trace has a row for each drafted token and changes none") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 20; ++trial) {
    const Job job = random_job(random, {});
    for (const bool self : {true, false}) {
      const Method method = self ? self_method(4) : ngram_method(4);
      FakeModel untraced_model;
      const RunResult untraced = run(untraced_model, method, job);
      RunResult result;
      const std::vector<TraceRow> rows = traced(method, job, result);
      std::size_t next = 0;
      for (std::size_t i = 0; i < result.requests.size(); ++i) {
        CHECK(result.requests[i].tokens == untraced.requests[i].tokens);
      }
      const auto& columns = result.sequence_rounds;
      std::vector<int> length(job.prompts.size(), 1);
      for (std::size_t i = 0; i < columns.request.size(); ++i) {
        const auto request = static_cast<std::size_t>(columns.request[i]);
        const std::vector<int32_t>& output = result.requests[request].tokens;
        for (int position = 0; position < columns.drafted[i]; ++position, ++next) {
          REQUIRE(next < rows.size());
          const TraceRow& row = rows[next];
          CHECK(row.request == request);
          CHECK(row.round == static_cast<uint32_t>(columns.round[i]));
          CHECK(row.draft_position == position);
          CHECK(row.output_position == static_cast<uint32_t>(length[request] + position));
          CHECK(row.prompt_length == job.prompts[request].size());
          const int status = position < columns.accepted[i]  ? 0
                             : position < columns.reached[i] ? 1
                                                             : 2;
          CHECK(row.status == status);
          CHECK((row.flags & 1) == (status < 2 ? 1 : 0));
          // The target's top token after accepted tokens is the output.
          if (position < columns.committed[i]) {
            CHECK(row.target_top1 == output[static_cast<std::size_t>(length[request] + position)]);
          }
          if (status < 2) CHECK((row.token == row.target_top1) == (status == 0));
          CHECK(row.target_prob <= row.target_top1_prob);
          CHECK(row.margin >= 0.0F);
          CHECK(row.draft_top1 == row.token);
          CHECK(std::isnan(row.kl) == !self);
          CHECK(std::isnan(row.draft_prob) == !self);
          CHECK(row.reserved == 0);
        }
        length[request] += columns.committed[i];
      }
      CHECK(next == rows.size());
    }
  }
}

TEST_CASE("a trace that cannot be made is a bad request") {
  CHECK_THROWS_AS(TraceWriter("/no/such/folder/trace"), core::Error);
}

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

TEST_CASE("a forward is refused by the row that breaks the rules") {
  const std::vector<int32_t> tokens{1, 2, 3};
  const auto refused = [&](Rows rows, const std::string& part) {
    try {
      validate(std::span(&rows, 1), 2, 10, 5);
      return false;
    } catch (const std::invalid_argument& error) {
      return std::string(error.what()).find(part) != std::string::npos;
    }
  };
  const std::vector<uint64_t> tree{0b001, 0b011, 0b101};
  CHECK_NOTHROW(validate(std::vector<Rows>{{1, 7, tokens, tree}}, 2, 10, 5));
  CHECK(refused({2, 0, tokens, {}}, "slot"));
  CHECK(refused({0, 8, tokens, {}}, "row 2: the position is beyond the cache"));
  CHECK(refused({0, -1, tokens, {}}, "negative"));
  CHECK(refused({0, 0, {}, {}}, "no tokens"));
  const std::vector<int32_t> foreign{1, 5, 3};
  CHECK(refused({0, 0, foreign, {}}, "row 1: the token"));
  const std::vector<uint64_t> blind{0b001, 0b001, 0b101};
  const std::vector<uint64_t> later{0b001, 0b111, 0b101};
  const std::vector<uint64_t> graph{0b001, 0b010, 0b111};
  const std::vector<uint64_t> few{0b001, 0b011};
  CHECK(refused({0, 0, tokens, blind}, "row 1: it does not see itself"));
  CHECK(refused({0, 0, tokens, later}, "row 1: it sees a later row"));
  CHECK(refused({0, 0, tokens, graph}, "row 2: its ancestors"));
  CHECK(refused({0, 0, tokens, few}, "one ancestor word"));
  CHECK_THROWS(validate({}, 2, 10, 5));
  CHECK_THROWS(validate(std::vector<Rows>{{0, 0, tokens, {}}, {0, 0, tokens, {}}}, 2, 10, 5));
}

TEST_CASE("methods are refused with the key and the near name") {
  const auto message = [](const std::string& text) -> std::string {
    try {
      method_of(text);
    } catch (const core::Error& error) {
      return std::string(core::name_of(error.type())) + ": " + error.what();
    }
    return "accepted";
  };
  const auto says = [&](const std::string& text, const std::string& part) {
    const std::string said = message(text);
    INFO(said);
    CHECK(said.find(part) != std::string::npos);
  };
  says(R"({"precision": "w4a61"})",
       "bad_request: 'method.precision': Unknown precision 'w4a61'. Did you mean 'w4a16'?");
  says(R"({"precision": "fp16", "drafter": {"kind": "slef"}})", "Did you mean 'self'?");
  says(R"({"precision": "fp16", "shape": {"kind": "chian", "gamma": 2}})", "Did you mean 'chain'?");
  says(R"({"precision": "fp16", "drafter": {"kind": "head", "precision": "w4a4"}})",
       "bad_request: 'method.drafter.id' is missing");
  says(R"({"precision": "fp16", "drafter": {"kind": "model", "id": "d"}})",
       "'method.drafter.precision' is missing");
  const auto says_of_tree = [&](const std::string& tree, const std::string& part) {
    says(R"({"precision": "fp16", "drafter": {"kind": "self", "precision": "w4a4"}, "shape": )"
         R"({"kind": "tree", )" +
             tree + "}}",
         part);
  };
  says_of_tree(R"("depth": 4, "top_k": 3, "nodes": 3)",
               "'method.shape.nodes' is 3; it must be 4 to 63");
  says_of_tree(R"("depth": 4, "top_k": 3, "nodes": 64)", "'method.shape.nodes' is 64");
  says_of_tree(R"("depth": 4, "top_k": 0, "nodes": 8)", "'method.shape.top_k' is 0");
  says_of_tree(R"("depth": 0, "top_k": 1, "nodes": 8)", "'method.shape.depth' is 0");
  says_of_tree(R"("depth": 8, "top_k": 10, "nodes": 60)", "must be at most 64");
  says_of_tree(R"("depth": 7, "top_k": 10, "nodes": 60)", "accepted");
  says(R"({"precision": "fp16", "drafter": {"kind": "ngram"},
           "shape": {"kind": "tree", "depth": 2, "top_k": 2, "nodes": 4}})",
       "proposes chains only");
  const auto says_of_cascade = [&](const std::string& inner, const std::string& inner_shape,
                                   const std::string& shape, const std::string& part) {
    says(R"({"precision": "fp16", "drafter": {"kind": "cascade", "id": "m", "precision": "w4a4",)"
         R"( "inner": )" +
             inner + R"(, "inner_shape": )" + inner_shape + R"(}, "shape": )" + shape + "}",
         part);
  };
  const std::string chain = R"({"kind": "chain", "gamma": 6})";
  const std::string long_chain = R"({"kind": "chain", "gamma": 58})";
  const std::string tree = R"({"kind": "tree", "depth": 3, "top_k": 10, "nodes": 30})";
  const std::string head = R"({"kind": "head", "id": "h", "precision": "w4a4"})";
  says_of_cascade(head, tree, chain, "accepted");
  says_of_cascade(head, tree, tree, "proposes chains only");
  says_of_cascade(R"({"kind": "none"})", tree, chain, "'method.drafter.inner' must name");
  says_of_cascade(head, R"({"kind": "none"})", chain, "'method.drafter.inner_shape' must say");
  says_of_cascade(head, chain, long_chain, "at most 63");
  const auto inside = [&](const std::string& inner) {
    return R"({"kind": "cascade", "id": "m", "precision": "w4a4", "inner": )" + inner +
           R"(, "inner_shape": )" + chain + "}";
  };
  says_of_cascade(inside(head), chain, chain, "accepted");
  says_of_cascade(inside(head), tree, chain, "proposes chains only");
  says_of_cascade(inside(inside(head)), chain, chain,
                  "'method.drafter.inner.inner.kind' is 'cascade'; cascades stand at most 2 deep");
  says(R"({"precision": "fp16", "acceptance": {"kind": "sampling"}})",
       "bad_request: 'method.acceptance.kind' is 'sampling', so 'sampling' of the run");
  says(R"({"precision": "fp16", "kv_precision": "kv8"})", "unsupported: 'method.kv_precision'");
  says(R"({"precision": "fp16", "gamma": 3})", "'method' has the unknown key 'gamma'");
  says(R"({"precision": "fp16", "shape": {"kind": "chain", "gamma": 2, "top": 1}})",
       "unknown key 'top'");
  for (const char* gamma : {"0", "-1", "64", "1e3", "2.5", "\"3\"", "18446744073709551615"}) {
    says(
        R"({"precision": "fp16", "drafter": {"kind": "ngram"}, "shape": {"kind": "chain", "gamma": )" +
            std::string(gamma) + "}}",
        "bad_request: 'method.shape.gamma'");
  }
  says(R"({"precision": "fp16", "drafter": {"kind": "ngram"}})", "'method.shape'");
  says(R"({"precision": "fp16", "shape": {"kind": "chain", "gamma": 3}})", "'method.shape'");
  says(
      R"({"precision": "fp16", "drafter": {"kind": "self"}, "shape": {"kind": "chain", "gamma": 3}})",
      "'method.drafter.precision' is missing");
  says(R"({"precision": "fp16", "drafter": {"kind": "ngram", "max_ngram": 2, "min_ngram": 3}})",
       "'method.drafter.min_ngram' is 3; it must be 1 to 2");
  says(R"({"precision": "fp16"})", "accepted");
}

}  // namespace
}  // namespace specquant::decode
