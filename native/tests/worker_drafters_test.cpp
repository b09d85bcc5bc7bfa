// Loaded drafters in the worker's calls: load, run, forward and what each refuses.
#include <doctest/doctest.h>

#include <new>

#include "core/errors.h"
#include "tests/drafter_bench.h"

namespace specquant::worker {
namespace {

using nlohmann::json;
using test::Bench;
using test::DrafterBench;
using test::kTree;
using test::named;
using test::PackedParts;
using test::TemporaryFile;

TEST_CASE("a load tells of its drafters, and its memory is that of all models") {
  DrafterBench bench;
  const json loaded = bench.ask(bench.load);
  CHECK(loaded["model"]["name"] == "tiny");
  CHECK(loaded["memory"]["weight_bytes"]["fake"] == 3000);
  CHECK(loaded["memory"]["kv_bytes"] == 6000);
  CHECK(loaded["proof"].size() == 2);
  const json& drafters = loaded["drafters"];
  REQUIRE(drafters.size() == 2);
  CHECK(drafters["small"]["model"] == json{{"name", "small"},
                                           {"vocab_size", 50},
                                           {"max_position", 256},
                                           {"content_hash", "small"}});
  CHECK(drafters["small"]["proof"]["w4a4"]["bytes_per_token"] == 1000);
  CHECK(drafters["small"]["memory"]["weight_bytes"]["fake"] == 1000);
  CHECK(drafters["middle"]["compute_dtype"].size() == 2);
  CHECK(bench.hardware.loads == 3);
}

TEST_CASE("drafters that were loaded draft, and change no token") {
  DrafterBench bench;
  bench.start();
  const json expected = bench.plain_tokens();
  CHECK(DrafterBench::tokens_of(bench.ask(bench.run)) == expected);
  bench.run["method"]["shape"] = kTree;
  const json tree = bench.ask(bench.run);
  CHECK(DrafterBench::tokens_of(tree) == expected);
  CHECK(tree["sequence_rounds"]["drafted"][0] == 8);
  CHECK_FALSE(tree.contains("levels"));

  bench.use_cascade();
  const json cascade = bench.ask(bench.run);
  CHECK(DrafterBench::tokens_of(cascade) == expected);
  const std::size_t rounds = cascade["levels"]["request"].size();
  CHECK(rounds > 0);
  for (const char* key : {"drafted", "reached", "accepted", "committed"}) {
    CHECK(cascade["levels"][key].size() == rounds);
  }
  bench.run["method"]["drafter"]["inner"] = {{"kind", "self"}, {"precision", "w4a4"}};
  CHECK(DrafterBench::tokens_of(bench.ask(bench.run)) == expected);
}

TEST_CASE("a forward of a drafter is timed by its id") {
  DrafterBench bench;
  bench.start();
  bench.forward["model"] = "small";
  bench.forward["precision"] = "w4a4";
  CHECK(bench.ask(bench.forward)["times"]["4"].size() == 3);
  bench.check_refused(bench.forward, "/precision", "fp16", "bad_request",
                      "'fp16' was not loaded for 'small'");
  bench.check_refused(bench.forward, "/model", "smal", "bad_request", "Did you mean 'small'?");
}

TEST_CASE("bad drafters are refused before anything is loaded") {
  DrafterBench bench;
  const auto refused = bench.refuser(bench.load);
  refused("/drafters", 3, "'drafters' must be a list");
  refused("/drafters/0", 3, "'drafters[0]' must be an object");
  refused("/drafters/0/id", "", "'drafters[0].id' is ''");
  refused("/drafters/0/id", "target", "'drafters[0].id' is 'target'");
  refused("/drafters/1/id", "small", "'drafters[1].id' is 'small', as that of a drafter before");
  refused("/drafters/1/pat", "x", "'pat'");
  refused("/drafters/1/synthetic", json::object(), "'drafters[1]' needs either");
  refused("/drafters/0/path", "/no/such/file", "/no/such/file", "model");
  refused("/drafters/0/precisions", json::array(), "'drafters[0].precisions' is empty");
  refused("/drafters/0/precisions", {"w4a44"}, "Did you mean 'w4a4'");
  refused("/drafters/0/precisions", {"w8a8"}, "'drafters[0].precisions': 'w8a8'", "unsupported");

  PackedParts other = named("other");
  other.metadata["vocab_size"] = 51;
  other.add("head", "affine8", 51, 64, 32);
  const TemporaryFile foreign(other.bytes());
  refused("/drafters/0/path", foreign.path(),
          "'drafters[0]': the drafter 'small' (other) has a vocabulary of 51 tokens and the target "
          "(tiny) one of 50");
  PackedParts brief = named("brief");
  brief.metadata["max_position"] = 100;
  const TemporaryFile short_one(brief.bytes());
  refused("/drafters/0/path", short_one.path(), "the drafter 'small' has positions for 100 tokens");
  CHECK(bench.hardware.loads == 0);
}

TEST_CASE("a drafter that does not fit the device leaves the models that were there") {
  DrafterBench bench;
  bench.start();
  const json expected = bench.plain_tokens();
  int attempts = 0;
  bench.hardware.on_load = [&] {
    if (++attempts == 2) throw std::bad_alloc();
  };
  bench.check_refused(bench.ask(bench.load), "out_of_memory", "memory");
  CHECK(DrafterBench::tokens_of(bench.ask(bench.run)) == expected);
  attempts = 0;
  bench.hardware.on_load = [&] {
    if (++attempts == 3) throw core::Error(core::ErrorType::unsupported, "Not here.");
  };
  bench.check_refused(bench.ask(bench.load), "unsupported", "'drafters[1]': Not here.");
}

TEST_CASE("runs name drafters that are loaded, as what they are") {
  DrafterBench bench;
  bench.start();
  const auto refused = bench.refuser(bench.run);
  refused("/method/drafter/id", "smal", "'method.drafter.id' is 'smal', which was not loaded");
  refused("/method/drafter/id", "smal", "Did you mean 'small'?");
  refused("/method/drafter/precision", "fp16", "'fp16' was not loaded for 'small'");
  refused("/method/drafter/kind", "head", "which is a model; its kind is 'model'");
  refused("/method/shape", {{"kind", "tree"}, {"depth", 3}, {"top_k", 0}, {"nodes", 8}},
          "'method.shape.top_k' is 0");
  bench.run["method"]["shape"] = {{"kind", "tree"}, {"depth", 6}, {"top_k", 10}, {"nodes", 12}};
  refused("/prompts/0", std::vector<int>(131, 1), "prompt 0 needs 131 + 20 + 50 tokens");
  bench.use_cascade();
  refused("/method/drafter/inner/id", "tiny", "'method.drafter.inner.id' is 'tiny'");
  refused("/method/drafter/inner", {{"kind", "self"}, {"precision", "fp16"}},
          "'fp16' was not loaded for 'middle'");
  refused("/prompts/0", std::vector<int>(170, 1), "prompt 0 needs 170 + 20 + 13 tokens");
  Bench none;
  none.start();
  none.run["method"]["drafter"] = {{"kind", "model"}, {"id", "small"}, {"precision", "w4a4"}};
  none.check_refused(none.ask(none.run), "bad_request", "None is loaded.");
}

}  // namespace
}  // namespace specquant::worker
