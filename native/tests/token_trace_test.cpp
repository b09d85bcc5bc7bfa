// The token trace: a row for each drafted token, in the order of the rounds.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "core/errors.h"
#include "tests/decode_jobs.h"
#include "tests/temporary_file.h"

namespace specquant::decode {
namespace {

using namespace test;

// Runs the job and reads back what its trace file holds.
std::vector<TraceRow> traced(const Method& method, const Job& job, RunResult& result) {
  const TemporaryFile written;
  FakeModel model;
  {
    TraceWriter trace(written.path());
    result = run(model, method, job, {.trace = &trace});
  }
  std::ifstream file(written.path(), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
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

}  // namespace
}  // namespace specquant::decode
