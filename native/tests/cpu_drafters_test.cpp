// Every drafter over real models on the processor: small random weights, the same tokens as plain
// decoding.
#include <doctest/doctest.h>

#include "cpu/model.h"
#include "tests/decode_cast.h"
#include "tests/packed_builder.h"

namespace specquant::cpu {
namespace {

using namespace test;
using reference::RandomModel;
using reference::RandomModelSpec;

RandomModelSpec head_spec(const RandomModel& target, core::Architecture architecture) {
  RandomModelSpec spec = reference::small_spec();
  spec.shape.layers = 1;
  spec.shape.tied_head = false;
  spec.seed = 31;
  spec.architecture = architecture;
  spec.target = &target;
  spec.own_embedding = spec.own_head = false;
  spec.taps =
      architecture == core::Architecture::eagle2 ? std::vector<int>{3} : std::vector<int>{0, 1, 2};
  spec.first_norm = spec.final_norm = architecture == core::Architecture::eagle3;
  for (int token = 0; token < spec.shape.vocabulary; token += 3) spec.draft_tokens.push_back(token);
  return spec;
}

// As the cast of fakes: d and m are the target's own weights, h an EAGLE-2 head, r an EAGLE-3 head,
// n a head for m; the heads have a reduced vocabulary.
struct Company {
  RandomModel weights{reference::small_spec()};
  RandomModel eagle2{head_spec(weights, core::Architecture::eagle2)};
  RandomModel eagle3{head_spec(weights, core::Architecture::eagle3)};
  std::unique_ptr<CpuModel> target = build(weights), d = build(weights), m = build(weights),
                            h = build(eagle2), r = build(eagle3), n = build(eagle2);

  std::unique_ptr<CpuModel> build(const RandomModel& model) const {
    static constexpr Precision kAll[] = {Precision::fp16, Precision::w4a16, Precision::w4a4};
    const bool head = model.file().metadata().target.has_value();
    return make_cpu_model(model.file(), kAll, 8, 160, 1, head ? &weights.file() : nullptr);
  }
  std::map<std::string, LoadedDrafter> drafters() const {
    return {{"d", {*d, {}}},
            {"m", {*m, {}}},
            {"h", {*h, {3}}},
            {"r", {*r, {0, 1, 2}}},
            {"n", {*n, {3}}}};
  }
};

TEST_CASE("every drafter gives the tokens of plain decoding, in batches of 1 to 8") {
  const Company company;
  const std::vector<Method> methods{
      speculative(kSelf, kChain),
      speculative(kSelf, kTree),
      speculative(kNgram, kChain),
      speculative(drafter("model", "d"), kChain),
      speculative(drafter("model", "d"), kTree),
      speculative(drafter("head", "h"), kChain),
      speculative(drafter("head", "h"), kTree),
      speculative(drafter("head", "r"), kTree),
      speculative(cascade(drafter("head", "n"), kTree), R"({"kind": "chain", "gamma": 6})"),
      speculative(cascade(drafter("model", "d"), kTree), R"({"kind": "chain", "gamma": 6})")};
  std::mt19937 random(7);
  Job job;
  for (int i = 0; i < 9; ++i) {
    std::vector<int32_t> prompt;
    for (auto length = 1 + random() % 30; length > 0; --length) {
      prompt.push_back(static_cast<int32_t>(random() % 300));
    }
    job.prompts.push_back(prompt);
    job.max_new_tokens.push_back(20 + static_cast<int>(random() % 20));
  }
  const RunResult plain = run(*company.target, method_of(R"({"precision": "fp16"})"), job);
  for (std::size_t way = 0; way < methods.size(); ++way) {
    int accepted = 0;
    for (const int batch : {1, 2, 5, 8}) {
      CAPTURE(way);
      CAPTURE(batch);
      job.batch_size = batch;
      const RunResult result =
          run(*company.target, methods[way], job, {.drafters = company.drafters()});
      for (std::size_t i = 0; i < job.prompts.size(); ++i) {
        CHECK(result.requests[i].tokens == plain.requests[i].tokens);
      }
      for (const int count : result.sequence_rounds.accepted) accepted += count;
    }
    const bool untrained_head = way >= 5 && way <= 7;
    if (!untrained_head && way != 2) CHECK(accepted > 100);
  }
}

}  // namespace
}  // namespace specquant::cpu
