// Replay: accepted lengths follow the profile, tokens and work are those of real rounds.
#include "decode/replay.h"

#include <doctest/doctest.h>

#include <map>

#include "decode/decoder.h"
#include "decode/self_drafter.h"
#include "tests/chi_square.h"
#include "tests/decode_jobs.h"
#include "tests/fake_model.h"
#include "tests/messages.h"

namespace specquant::decode {
namespace {

using test::check_says;
using test::chi_square_excess;
using test::FakeModel;
using test::kLuck;

const ReplayProfile kProfile{{0.1, 0.0, 0.4, 0.3, 0.2}};

RunResult replay(const ReplayProfile& profile, const Shape& shape, int batch_size) {
  FakeModel model;
  SelfDrafter drafter(model, Precision::w4a4);
  ReplayAcceptance acceptance(profile, 5);
  Job job;
  for (int32_t i = 0; i < 200; ++i) job.prompts.push_back({i % 13, i % 7});
  job.max_new_tokens.assign(job.prompts.size(), 60);
  job.batch_size = batch_size;
  return decode({.model = model,
                 .precision = Precision::fp16,
                 .shape = shape,
                 .drafter = &drafter,
                 .acceptance = acceptance},
                job);
}

std::vector<int64_t> lengths(const SequenceRoundColumns& columns, int drafted) {
  std::vector<int64_t> counts(static_cast<std::size_t>(drafted) + 1, 0);
  for (std::size_t i = 0; i < columns.accepted.size(); ++i) {
    if (columns.drafted[i] == drafted) ++counts[static_cast<std::size_t>(columns.accepted[i])];
  }
  return counts;
}

TEST_CASE("accepted lengths have the profile's distribution") {
  const RunResult result = replay(kProfile, {.depth = 4, .top_k = 1, .nodes = 4}, 8);
  CHECK(chi_square_excess(lengths(result.sequence_rounds, 4), kProfile.accepted) < kLuck);
  const std::vector<double> other{0.1, 0.05, 0.35, 0.3, 0.2};
  CHECK(chi_square_excess(lengths(result.sequence_rounds, 4), other) > kLuck);
  for (std::size_t i = 0; i < result.sequence_rounds.accepted.size(); ++i) {
    const int drafted = result.sequence_rounds.drafted[i];
    const int accepted = result.sequence_rounds.accepted[i];
    CHECK(result.sequence_rounds.reached[i] == std::min(drafted, accepted + 1));
    CHECK(result.sequence_rounds.committed[i] == accepted + 1);
  }
}

TEST_CASE("a draw beyond what was proposed is cut to it") {
  const RunResult result = replay(kProfile, {.depth = 3, .top_k = 1, .nodes = 3}, 8);
  const std::vector<double> cut{0.1, 0.0, 0.4, 0.5};
  CHECK(chi_square_excess(lengths(result.sequence_rounds, 3), cut) < kLuck);
}

TEST_CASE("replayed lengths do not depend on the batch") {
  const Shape shape{.depth = 4, .top_k = 1, .nodes = 4};
  const auto alone = replay(kProfile, shape, 1).requests;
  const auto together = replay(kProfile, shape, 7).requests;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(alone[i].tokens == together[i].tokens);
    CHECK(alone[i].round_tokens == together[i].round_tokens);
  }
}

// One round over a tree in which rows 1 and 2 are children of row 0, 3 of 1, 4 and 5 of 2, 6 of 5.
Verdict verdict_of(const std::vector<double>& accepted, FakeModel& model) {
  Proposal proposal;
  proposal.add(7, 0);
  proposal.add(8, 0);
  proposal.add(9, 1);
  proposal.add(10, 2);
  proposal.add(11, 2);
  proposal.add(12, 5);
  const std::vector<int32_t> tokens{1, 7, 8, 9, 10, 11, 12};
  const std::vector<uint64_t> ancestors{1, 3, 5, 11, 21, 37, 101};
  const Rows rows{.slot = 0, .base = 0, .tokens = tokens, .ancestors = ancestors};
  ReplayAcceptance acceptance({accepted}, 3);
  model.forward(Precision::fp16, std::span(&rows, 1), acceptance.want());
  Verdict verdict;
  acceptance.decide({0, 1}, proposal, {model, 0}, verdict);
  return verdict;
}

TEST_CASE("of a tree the path to the first of the deepest nodes is taken") {
  FakeModel model;
  const Verdict none = verdict_of({1.0}, model);
  CHECK(none.path.empty());
  CHECK(none.refused);
  CHECK(none.next == model.top(0)[0].token);
  const Verdict two = verdict_of({0.0, 0.0, 1.0}, model);
  CHECK(two.path == std::vector{2, 5});
  CHECK(two.refused);
  CHECK(two.next == model.top(5)[0].token);
  const Verdict cut = verdict_of({0.0, 0.0, 0.0, 0.0, 1.0}, model);
  CHECK(cut.path == std::vector{2, 5, 6});
  CHECK_FALSE(cut.refused);
  CHECK(cut.next == model.top(6)[0].token);
}

std::string message(const std::string& acceptance) {
  return test::verdict_on_method(R"({"precision": "fp16", "drafter": {"kind": "ngram"},
                                     "shape": {"kind": "chain", "gamma": 2}, "acceptance": )" +
                                 acceptance + "}");
}

std::string of_profile(const std::string& accepted) {
  return message(R"({"kind": "replay", "seed": 1, "profile": {"accepted": )" + accepted + "}}");
}

TEST_CASE("a profile that is none is refused by its place") {
  CHECK(of_profile("[0.5, 0.25, 0.25]") == "accepted");
  CHECK(of_profile("[0.5, 0.5000005]") == "accepted");
  CHECK(of_profile("[1]") == "accepted");
  check_says(of_profile("[]"), "'method.acceptance.profile.accepted': it has no probabilities");
  check_says(of_profile("[0.5, 0.25, 0.15, 0.1]"), "the longest path of the shape has 2 tokens");
  check_says(of_profile("[-0.5, 1.5]"), "entry 0 is no probability between 0 and 1");
  check_says(of_profile("[0, 1.5]"), "entry 1 is no probability");
  check_says(of_profile("[0.5, 0.4]"), "add up to 0.9");
  check_says(of_profile("[0.5, 0.50001]"), "instead of 1");
  check_says(of_profile("[0.5, null]"), "'method.acceptance.profile.accepted[1]' must be a number");
  check_says(of_profile("0.5"), "must be a list");
  check_says(message(R"({"kind": "replay", "seed": 1})"), "'method.acceptance.profile' is missing");
  check_says(message(R"({"kind": "replay", "profile": {"accepted": [1]}})"),
             "'method.acceptance.seed' is missing");
  check_says(
      message(R"({"kind": "replay", "seed": 1, "profile": {"accepted": [1], "inner": [1]}})"),
      "'method.acceptance.profile.inner' must be left out");
  check_says(
      message(R"({"kind": "replay", "seed": 1, "profile": {"accepted": [1], "outer": [1]}})"),
      "unknown key 'outer'");
}

}  // namespace
}  // namespace specquant::decode
