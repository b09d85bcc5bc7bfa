// Whole decodes with draft heads on the GPU: the tokens of plain decoding. Skipped, with the
// reason, without a GPU.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/cuda_heads.h"
#include "tests/decode_cast.h"
#include "tests/model_rows.h"

namespace specquant::test {
namespace {

// As the cast of fakes: m has the target's own weights, h is an EAGLE-2 head, r an EAGLE-3 head, n
// a head for m.
struct Company {
  RandomModel eagle2{eagle2_reduced_spec()}, eagle3{eagle3_spec()};
  std::unique_ptr<Model> whole = build(target()), m = build(target()), h = build(eagle2),
                         r = build(eagle3), n = build(eagle3);
  std::map<std::string, LoadedDrafter> drafters() const {
    return {{"m", {*m, {}}}, {"h", {*h, {3}}}, {"r", {*r, {0, 1, 2}}}, {"n", {*n, {0, 1, 2}}}};
  }
};

TEST_CASE("drafting with heads gives the tokens of plain decoding") {
  NEEDS_GPU();
  const Company company;
  const std::vector<Method> methods{
      speculative(drafter("head", "h"), kChain), speculative(drafter("head", "h"), kTree),
      speculative(drafter("head", "r"), kChain), speculative(drafter("head", "r"), kTree),
      speculative(cascade(drafter("head", "n"), kTree), R"({"kind": "chain", "gamma": 6})")};
  std::mt19937 random(7);
  Job job;
  for (int i = 0; i < 6; ++i) {
    job.prompts.push_back(random_tokens(1 + static_cast<int>(random() % 40), random));
    job.max_new_tokens.push_back(30 + static_cast<int>(random() % 30));
  }
  const auto plain = run(*company.whole, method_of(R"({"precision": "fp16"})"), job);
  for (std::size_t way = 0; way < methods.size(); ++way) {
    for (const int batch : {1, 4}) {
      CAPTURE(way);
      CAPTURE(batch);
      job.batch_size = batch;
      const auto result = run(*company.whole, methods[way], job, {.drafters = company.drafters()});
      for (std::size_t i = 0; i < job.prompts.size(); ++i) {
        CHECK(result.requests[i].tokens == plain.requests[i].tokens);
      }
    }
  }
}

TEST_CASE("a synthetic head drafts beside a synthetic target") {
  NEEDS_GPU();
  core::SyntheticModel model;
  model.shape = target_spec().shape;
  model.shape.tied_head = false;
  core::SyntheticModel small = model;
  small.shape.layers = 1;
  small.seed = 2;
  small.target = core::HeadTarget{"", 192, 2, {0, 1, 2}};
  small.shape.feature_width = 3 * 192;
  small.draft_vocabulary = 70;
  const auto whole = cuda::make_cuda_model(model, kPrecisions, kSlots, kContext);
  const auto head = cuda::make_cuda_model(small, kPrecisions, kSlots, kContext);
  CHECK(std::ranges::equal(head->draft_tokens(), small.draft_tokens()));
  CHECK(head->proof(Precision::w4a16).bytes_per_token > 0);
  const Sequence sequence = random_sequence(5, 3 * 192, 5);
  const Row row = forward(*head, Precision::w4a16, {sequence.rows(0, 0, 5)})[4];
  CHECK(row.values.size() == 70 + 2);
  for (const float value : row.values) CHECK(std::isfinite(value));
  // A drawn head is sure of its choices, a drawn model is not: trees grow deep.
  const auto sureness = [](Model& drawn, std::size_t count) {
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += std::exp(static_cast<double>(drawn.top(i)[0].logit - drawn.log_sum(i)));
    }
    return sum / static_cast<double>(count);
  };
  const Sequence long_sequence = random_sequence(100, 3 * 192, 6);
  forward(*head, Precision::w4a16, {long_sequence.rows(0, 0, 100)});
  CHECK(sureness(*head, 100) > 0.4);
  const Rows plain_rows{0, 0, long_sequence.tokens, {}};
  forward(*whole, Precision::w4a16, {plain_rows});
  CHECK(sureness(*whole, 100) < 0.2);
  Job job;
  job.prompts = {{1, 2, 3}};
  job.max_new_tokens = {40};
  job.batch_size = 1;
  const auto plain = run(*whole, method_of(R"({"precision": "fp16"})"), job);
  const auto drafted = run(*whole, speculative(drafter("head", "r"), kTree), job,
                           {.drafters = {{"r", {*head, {0, 1, 2}}}}});
  CHECK(drafted.requests[0].tokens == plain.requests[0].tokens);
}

}  // namespace
}  // namespace specquant::test
