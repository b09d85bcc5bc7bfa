// The calls of the protocol, in this process.
#include "worker/worker.h"

#include <doctest/doctest.h>

#include "tests/worker_bench.h"

namespace specquant::worker {
namespace {

using nlohmann::json;
using test::Bench;
using test::PackedParts;
using test::synthetic_of;
using test::TemporaryFile;

TEST_CASE("hello tells what is registered") {
  Bench bench;
  const json hello = bench.ask({{"id", 5}, {"call", "hello"}});
  CHECK(hello["id"] == 5);
  CHECK(hello["protocol"] == 1);
  CHECK(hello["backend"] == "native");
  CHECK(hello["build"].get<std::string>().size() == 64);
  CHECK(hello["device"] ==
        json{{"kind", "fake"}, {"name", "none"}, {"isa", "none"}, {"threads", 3}});
  const json& capabilities = hello["capabilities"];
  CHECK(capabilities["calls"] == json{"hello", "load", "run", "forward", "score", "close"});
  CHECK(capabilities["precisions"] == json{"fp16", "w4a16", "w4a4"});
  CHECK(capabilities["drafters"] == json{"none", "self", "ngram", "model", "head", "cascade"});
  CHECK(capabilities["shapes"] == json{"none", "chain", "tree", "auto"});
  CHECK(capabilities["acceptance"] == json{"greedy", "sampling", "replay"});
  CHECK(capabilities["max_batch"] == 6);
  CHECK(capabilities["trace"] == json{"none", "rounds", "tokens"});
}

TEST_CASE("load, run, forward, score and close answer as the protocol says") {
  Bench bench;
  const json loaded = bench.ask(bench.load);
  CHECK(
      loaded["model"] ==
      json{{"name", "tiny"}, {"vocab_size", 50}, {"max_position", 256}, {"content_hash", "none"}});
  CHECK(loaded["memory"]["weight_bytes"]["fake"] == 1000);
  CHECK(loaded["memory"]["kv_bytes"] == 2000);
  CHECK(loaded["memory"]["peak_bytes"] > 0);
  CHECK(loaded["proof"]["w4a4"] == json{{"kernels", {"fake_w4a4"}}, {"bytes_per_token", 1000}});
  CHECK(loaded["compute_dtype"] == json{{"fp16", "integers"}, {"w4a4", "integers"}});

  const json speculative = bench.ask(bench.run);
  json plain_request = bench.run;
  plain_request["method"] = {{"precision", "fp16"}};
  const json plain = bench.ask(plain_request);
  REQUIRE(speculative["requests"].size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const json& request = speculative["requests"][i];
    CHECK(request["tokens"] == plain["requests"][i]["tokens"]);
    CHECK(request["prompt_tokens"] == bench.run["prompts"][i].size());
    CHECK(request["output_tokens"] == request["tokens"].size());
    CHECK(request["round_end_s"].size() == request["round_tokens"].size());
    for (const char* key : {"queue_s", "prefill_s", "ttft_s"})
      CHECK(request[key].is_number_float());
    CHECK(request["ttft_shared"] == false);
    CHECK((request["finish"] == "stop" || request["finish"] == "length"));
  }
  const std::size_t rounds = speculative["rounds"]["rows"].size();
  for (const char* key : {"start_s", "draft_s", "verify_s", "other_s", "sequences"}) {
    CHECK(speculative["rounds"][key].size() == rounds);
  }
  const std::size_t parts = speculative["sequence_rounds"]["request"].size();
  for (const char* key : {"round", "drafted", "reached", "accepted", "committed"}) {
    CHECK(speculative["sequence_rounds"][key].size() == parts);
  }
  CHECK(speculative["wall_s"] >= speculative["decode_s"]);
  CHECK(speculative["memory"]["peak_bytes"] > 0);

  const json times = bench.ask(bench.forward);
  CHECK(times["times"].size() == 3);
  CHECK(times["times"]["4"].size() == 3);
  CHECK(times["bandwidth_bytes_s"] == 1e9);
  CHECK(times["bytes_per_token"] == 1000);
  json tree = bench.forward;
  tree["mask"] = "tree";
  tree["tokens"] = {1, 64};
  CHECK(bench.ask(tree)["times"]["64"].size() == 3);

  const json scored = bench.ask(bench.score);
  CHECK(scored["sequences"][0]["top1"].size() == 3);
  CHECK(scored["sequences"][0]["kl"].size() == 3);
  CHECK(scored["sequences"][1]["ref_logprob"].size() == 1);
  json alone = bench.score;
  alone["reference"] = nullptr;
  CHECK_FALSE(bench.ask(alone)["sequences"][0].contains("kl"));

  CHECK_FALSE(bench.worker.closed());
  CHECK(bench.ask({{"id", 9}, {"call", "close"}}) == json{{"id", 9}, {"closed", true}});
  CHECK(bench.worker.closed());
}

TEST_CASE("a shared prefill is held until it is cleared or another model is loaded") {
  Bench bench;
  bench.start();
  bench.run["share_prefill"] = true;
  const auto shared = [&] {
    return bench.ask(bench.run)["requests"][0]["ttft_shared"].get<bool>();
  };
  CHECK_FALSE(shared());
  CHECK(shared());
  bench.run["prefill_cache"] = {{"clear", true}};
  CHECK_FALSE(shared());
  bench.run["prefill_cache"] = nullptr;
  CHECK(shared());
  bench.start();
  CHECK_FALSE(shared());
}

TEST_CASE("sampled runs repeat with their seed, and temperature 0 is greedy") {
  Bench bench;
  bench.start();
  const auto tokens = [&](const json& request) {
    const json answer = bench.ask(request);
    REQUIRE_FALSE(answer.contains("error"));
    json all = json::array();
    for (const json& entry : answer["requests"]) all.push_back(entry["tokens"]);
    return all;
  };
  const json greedy = tokens(bench.run);
  const auto sampled = [&](double temperature, int seed) {
    json request = bench.run;
    request["method"]["acceptance"]["kind"] = "sampling";
    request["sampling"] = {{"temperature", temperature}, {"top_p", 0.9}, {"seed", seed}};
    return tokens(request);
  };
  CHECK(sampled(0.0, 1) == greedy);
  CHECK(sampled(2.0, 1) == sampled(2.0, 1));
  CHECK(sampled(2.0, 1) != sampled(2.0, 2));
  CHECK(sampled(2.0, 1) != greedy);
  json replayed = bench.run;
  replayed["method"]["acceptance"] = {
      {"kind", "replay"}, {"seed", 3}, {"profile", {{"accepted", {0.0, 0.0, 1.0}}}}};
  replayed["stop_ids"] = json::array();
  const json columns = bench.ask(replayed)["sequence_rounds"];
  for (std::size_t i = 0; i < columns["accepted"].size(); ++i) {
    CHECK(columns["accepted"][i] == std::min(2, columns["drafted"][i].get<int>()));
  }
}

TEST_CASE("a token trace is written where asked for") {
  Bench bench;
  bench.start();
  const TemporaryFile trace;
  const json untraced = bench.ask(bench.run);
  bench.run["trace"] = "tokens";
  bench.run["trace_path"] = trace.path();
  const json traced = bench.ask(bench.run);
  CHECK(traced["requests"][1]["tokens"] == untraced["requests"][1]["tokens"]);
  int drafted = 0;
  for (const json& count : traced["sequence_rounds"]["drafted"]) drafted += count.get<int>();
  CHECK(drafted > 0);
  CHECK(std::filesystem::file_size(trace.path()) == static_cast<std::size_t>(drafted) * 64);
}

TEST_CASE("lines that are no requests are answered with a null id") {
  Bench bench;
  for (const std::string line :
       {"", "{", "hello", "[1]", "3", "null", R"({"id": 1, "call": "hello"} x)",
        "{\"id\": \"\xff\"}", R"({"id": 1e999})", R"({"call": "hello"})",
        R"({"id": null, "call": "hello"})", R"({"id": "1", "call": "hello"})",
        R"({"id": 1.5, "call": "hello"})"}) {
    const json answer = bench.ask_text(line);
    bench.check_refused(answer, "bad_request", "");
    CHECK(answer["id"].is_null());
  }
  for (const char* bracket : {"[", "{\"a\":"}) {
    std::string deep = R"({"id": 1, "call": )";
    for (int i = 0; i < 1000000; ++i) deep += bracket;
    bench.check_refused(bench.ask_text(deep), "bad_request", "nests deeper");
  }
  CHECK(bench.ask_text(R"({"id": -7, "call": "hello"})")["id"] == -7);
  CHECK(json::parse(Worker::answer_to_long_line())["error"]["type"] == "bad_request");
}

TEST_CASE("unknown calls and keys are refused with the near name") {
  Bench bench;
  bench.check_refused(bench.ask({{"id", 1}, {"call", "helo"}}), "bad_request",
                      "Did you mean 'hello'?");
  bench.check_refused(bench.ask({{"id", 1}, {"call", 3}}), "bad_request", "'call'");
  bench.check_refused(bench.ask({{"id", 1}}), "bad_request", "'call' is missing");
  bench.check_refused(bench.ask({{"id", 1}, {"call", "hello"}, {"cal", 1}}), "bad_request",
                      "'cal'");
  bench.check_refused(bench.ask(bench.run), "bad_request", "call 'load' first");
  bench.check_refused(bench.ask(bench.forward), "bad_request", "call 'load' first");
  bench.check_refused(bench.ask(bench.score), "bad_request", "call 'load' first");
  std::string broken = R"({"id": 1, "call": ")";
  for (int i = 0; i < 40; ++i) broken += "\xe3\x81\x82";  // cut inside a character when quoted
  bench.check_refused(bench.ask_text(broken + "\"}"), "bad_request", "unknown");
}

TEST_CASE("a synthetic model is loaded by its shape and seed, without a file") {
  Bench bench;
  bench.load["model"] = {{"synthetic", synthetic_of(PackedParts().metadata)}};
  const json loaded = bench.ask(bench.load);
  CHECK(loaded["model"]["name"] == "made up");
  CHECK(loaded["model"]["vocab_size"] == 50);
  CHECK(loaded["model"]["max_position"] == 256);
  CHECK(bench.hardware.seed == 7);
  CHECK(bench.ask(bench.run).contains("requests"));
  CHECK(bench.ask(bench.forward).contains("times"));
  CHECK(bench.ask(bench.score).contains("sequences"));
  // Another seed is another model.
  bench.load["model"]["synthetic"]["seed"] = 8;
  CHECK(bench.ask(bench.load)["model"]["content_hash"] != loaded["model"]["content_hash"]);
}

}  // namespace
}  // namespace specquant::worker
