// Jobs for the decode loop, and what any result of it must satisfy.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/errors.h"
#include "core/json.h"
#include "decode/decoder.h"
#include "decode/method.h"
#include "tests/fake_model.h"

namespace specquant::test {

using namespace decode;

inline Method method_of(const std::string& text) {
  const auto json = core::parse_json(text);
  return parse_method(core::Fields(json, "method"));
}

// What parse_method() says of `text`: "accepted", or the error's type and message.
inline std::string verdict_on_method(const std::string& text) {
  try {
    method_of(text);
    return "accepted";
  } catch (const core::Error& error) {
    return std::string(core::name_of(error.type())) + ": " + error.what();
  }
}

inline Method plain() { return method_of(R"({"precision": "fp16"})"); }

inline Method self_method(int gamma) {
  return method_of(R"({"precision": "fp16", "drafter": {"kind": "self", "precision": "w4a4"},
                       "shape": {"kind": "chain", "gamma": )" +
                   std::to_string(gamma) + "}}");
}

inline Method ngram_method(int gamma) {
  return method_of(R"({"precision": "fp16", "drafter": {"kind": "ngram"},
                       "shape": {"kind": "chain", "gamma": )" +
                   std::to_string(gamma) + "}}");
}

struct Extras {
  PrefillCache* cache = nullptr;
  TraceWriter* trace = nullptr;
  std::map<std::string, LoadedDrafter> drafters = {};
};

inline RunResult run(Model& model, const Method& method, const Job& job,
                     const Extras& extras = {}) {
  const auto acceptance = method.make_acceptance();
  const auto inner_acceptance = method.make_inner_acceptance();
  const Resources resources{model, job.batch_size, extras.drafters, *inner_acceptance};
  const auto drafter = method.make_drafter ? method.make_drafter(resources) : nullptr;
  std::optional<ShapeChooser> chooser;
  if (!method.candidates.empty()) chooser.emplace(method.candidates);
  return decode::decode({.model = model,
                         .precision = method.precision,
                         .shape = method.shape,
                         .chooser = chooser ? &*chooser : nullptr,
                         .drafter = drafter.get(),
                         .acceptance = *acceptance,
                         .prefill_cache = extras.cache,
                         .trace = extras.trace},
                        job);
}

inline Job random_job(std::mt19937& random, const FakeOptions& options) {
  Job job;
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  const int count = 1 + below(12);
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t> prompt;
    for (int length = 1 + below(20); length > 0; --length)
      prompt.push_back(below(options.vocabulary));
    job.prompts.push_back(prompt);
    job.max_new_tokens.push_back(1 + below(40));
  }
  for (int stops = below(3); stops > 0; --stops) job.stop_ids.push_back(below(options.vocabulary));
  job.batch_size = 1 + below(options.max_batch);
  return job;
}

// What the fields of any result must satisfy; `most` is the most that a round may draft.
inline void check_counts(const RunResult& result, const Job& job, int most, bool chain = true) {
  const SequenceRoundColumns& columns = result.sequence_rounds;
  std::vector<int> committed(job.prompts.size(), 1);
  std::vector<int> rows(result.rounds.rows.size(), 0);
  std::vector<int> sequences(result.rounds.rows.size(), 0);
  for (std::size_t i = 0; i < columns.request.size(); ++i) {
    CHECK(columns.drafted[i] <= most);
    CHECK(columns.drafted[i] >= columns.reached[i]);
    CHECK(columns.reached[i] >= columns.accepted[i]);
    CHECK(columns.accepted[i] + 1 >= columns.committed[i]);
    CHECK(columns.committed[i] >= 1);
    const auto request = static_cast<std::size_t>(columns.request[i]);
    const int remaining = job.max_new_tokens[request] - committed[request];
    if (chain) CHECK(columns.drafted[i] <= remaining - 1);
    committed[request] += columns.committed[i];
    rows[static_cast<std::size_t>(columns.round[i])] += columns.drafted[i] + 1;
    ++sequences[static_cast<std::size_t>(columns.round[i])];
  }
  CHECK(rows == result.rounds.rows);
  CHECK(sequences == result.rounds.sequences);
  double decode_s = 0.0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(sequences[i] <= job.batch_size);
    const double duration =
        result.rounds.draft_s[i] + result.rounds.verify_s[i] + result.rounds.other_s[i];
    decode_s += duration;
    if (i > 0) CHECK(result.rounds.start_s[i] >= result.rounds.start_s[i - 1]);
    CHECK(result.rounds.draft_s[i] >= 0.0);
    CHECK(result.rounds.verify_s[i] >= 0.0);
    CHECK(result.rounds.other_s[i] >= 0.0);
  }
  CHECK(decode_s == doctest::Approx(result.decode_s));
  CHECK(result.decode_s <= result.wall_s);
  for (std::size_t i = 0; i < job.prompts.size(); ++i) {
    const RequestResult& request = result.requests[i];
    CHECK(static_cast<int>(request.tokens.size()) == committed[i]);
    CHECK(static_cast<int>(request.tokens.size()) <= job.max_new_tokens[i]);
    CHECK(request.round_end_s.size() == request.round_tokens.size());
    int tokens = 0;
    for (const int count : request.round_tokens) tokens += count;
    CHECK(tokens == committed[i]);
    CHECK(std::ranges::is_sorted(request.round_end_s));
    const bool stopped =
        std::ranges::find(job.stop_ids, request.tokens.back()) != job.stop_ids.end();
    CHECK((request.finish == Finish::stop) == stopped);
    if (!stopped) CHECK(static_cast<int>(request.tokens.size()) == job.max_new_tokens[i]);
    for (std::size_t t = 0; t + 1 < request.tokens.size(); ++t) {
      CHECK(std::ranges::find(job.stop_ids, request.tokens[t]) == job.stop_ids.end());
    }
    CHECK(request.ttft_s >= request.queue_s + request.prefill_s);
  }
}

// The tokens of each prompt decoded by forwards over the whole text, with no loop to trust.
inline std::vector<std::vector<int32_t>> reference_tokens(const FakeOptions& options,
                                                          const Job& job) {
  std::vector<std::vector<int32_t>> outputs;
  for (std::size_t i = 0; i < job.prompts.size(); ++i) {
    FakeModel model(options);
    std::vector<int32_t> text = job.prompts[i];
    std::vector<int32_t> output;
    while (static_cast<int>(output.size()) < job.max_new_tokens[i]) {
      const Rows rows{.slot = 0, .base = 0, .tokens = text};
      model.forward(Precision::fp16, std::span(&rows, 1), {});
      output.push_back(model.top(0)[0].token);
      text.push_back(output.back());
      if (std::ranges::find(job.stop_ids, output.back()) != job.stop_ids.end()) break;
    }
    outputs.push_back(output);
  }
  return outputs;
}

}  // namespace specquant::test
