// The calls of the protocol, in this process, over hardware that fails on order.
#include "worker/worker.h"

#include <doctest/doctest.h>

#include <new>

#include "core/errors.h"
#include "tests/worker_bench.h"

namespace specquant::worker {
namespace {

using nlohmann::json;
using test::Bench;
using test::PackedParts;
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

// The request for a model without a file, of the shape that a packed file's metadata have.
json synthetic_of(const json& metadata) {
  json synthetic = {{"name", "made up"}, {"seed", 7}};
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
        "vocab_size", "max_position", "rope_theta", "rms_norm_eps", "tied_head"}) {
    synthetic[key] = metadata.at(key);
  }
  return synthetic;
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

TEST_CASE("bad loads are refused and leave the model that was there") {
  Bench bench;
  bench.start();
  const auto refused = [&](const std::string& pointer, const json& value, const std::string& type,
                           const std::string& part) {
    bench.check_refused(bench.load, pointer, value, type, part);
  };
  refused("/model", {{"path", "/no/such/file"}}, "model", "/no/such/file");
  json synthetic = synthetic_of(PackedParts().metadata);
  refused("/model", {{"synthetic", synthetic}, {"path", "x"}}, "bad_request", "'path' or");
  bench.hardware.makes_synthetic = false;
  refused("/model", {{"synthetic", synthetic}}, "unsupported", "no synthetic models");
  bench.hardware.makes_synthetic = true;
  synthetic["head_dim"] = "wide";
  refused("/model", {{"synthetic", synthetic}}, "bad_request",
          "'model.synthetic': 'head_dim' is not an integer");
  synthetic.erase("head_dim");
  refused("/model", {{"synthetic", synthetic}}, "bad_request", "'model.synthetic.head_dim'");
  refused("/model", {{"synthetic", {{"hidden_siz", 1}}}}, "bad_request", "'model.synthetic.name'");
  refused("/model", json::object(), "bad_request", "'path' or 'synthetic'");
  refused("/model", 3, "bad_request", "'model'");
  refused("/model/path", 3, "bad_request", "'model.path'");
  refused("/model/pth", "x", "bad_request", "'pth'");
  refused("/precisions", json::array(), "bad_request", "'precisions'");
  refused("/precisions", {"w4a44"}, "bad_request", "Did you mean 'w4a4'");
  refused("/precisions", {"w8a8"}, "unsupported", "'w8a8'");
  refused("/precisions", {1}, "bad_request", "'precisions[0]'");
  refused("/max_context", 0, "bad_request", "'max_context'");
  refused("/max_context", 257, "bad_request", "256");
  refused("/max_batch", 7, "bad_request", "'max_batch' is 7; it must be 1 to 6");
  refused("/max_batch", -1, "bad_request", "'max_batch'");
  refused("/seed", -1, "bad_request", "'seed'");
  refused("/sed", 1, "bad_request", "Did you mean 'seed'");
  const TemporaryFile truncated(PackedParts().bytes().substr(0, 4000));
  refused("/model/path", truncated.path(), "model", "truncated");
  CHECK(bench.hardware.loads == 2);  // put back after the device had refused
  CHECK(bench.ask(bench.run).contains("requests"));
}

TEST_CASE("a device that fails at load gives a typed error and the former model back") {
  Bench bench;
  bench.hardware.on_load = [] { throw std::bad_alloc(); };
  bench.check_refused(bench.ask(bench.load), "out_of_memory", "memory");
  bench.check_refused(bench.ask(bench.run), "bad_request", "call 'load' first");
  bench.hardware.on_load = [] {};
  bench.start();
  int attempts = 0;
  bench.hardware.on_load = [&] {
    if (attempts++ == 0) throw core::Error(core::ErrorType::device, "The device is gone.");
  };
  bench.check_refused(bench.ask(bench.load), "device", "The device is gone.");
  CHECK(bench.ask(bench.run).contains("requests"));
}

TEST_CASE("a device that fails at work leaves the worker usable") {
  Bench bench;
  bench.start();
  const json before = bench.ask(bench.run);
  int forwards = 0;
  bench.hardware.on_forward = [&] {
    if (++forwards == 5) throw std::bad_alloc();
  };
  bench.check_refused(bench.ask(bench.run), "out_of_memory", "memory");
  CHECK(bench.ask(bench.run)["requests"][2]["tokens"] == before["requests"][2]["tokens"]);
  bench.hardware.on_forward = [] { throw std::runtime_error("broken"); };
  for (const json& request : {bench.run, bench.forward, bench.score}) {
    bench.check_refused(bench.ask(request), "internal", "broken");
  }
  bench.hardware.on_forward = [] {};
  CHECK(bench.ask(bench.score).contains("sequences"));
}

TEST_CASE("a device that is lost ends the worker, so that a fresh one goes on") {
  Bench bench;
  bench.start();
  bench.hardware.on_forward = [&] {
    bench.hardware.lost = true;
    throw core::Error(core::ErrorType::device, "CUDA failed at a forward pass.");
  };
  try {
    bench.ask(bench.run);
    FAIL("the worker answered");
  } catch (const core::Error& error) {
    CHECK(std::string(error.what()) ==
          "CUDA failed at a forward pass. The device is lost to this process.");
  }
  // Other errors are no reason to ask the device.
  bench.hardware.on_forward = [] { throw std::bad_alloc(); };
  bench.check_refused(bench.ask(bench.run), "out_of_memory", "memory");
}

TEST_CASE("bad runs are refused and name the key, the prompt and the position") {
  Bench bench;
  bench.start();
  const auto refused = [&](const std::string& pointer, const json& value, const std::string& part,
                           const std::string& type = "bad_request") {
    bench.check_refused(bench.run, pointer, value, type, part);
  };
  refused("/prompts", json::array(), "'prompts'");
  refused("/prompts", "text", "'prompts'");
  refused("/prompts/1", json::array(), "prompt 1 is empty");
  refused("/prompts/1", 7, "prompt 1 must be a list");
  refused("/prompts/1/1", 50, "prompt 1, position 1: token id 50 is outside the vocabulary of 50");
  refused("/prompts/2/0", -1, "prompt 2, position 0: token id -1");
  refused("/prompts/0/2", 1e10, "'prompts[0][2]'");
  refused("/prompts/0/2", 18446744073709551615U, "'prompts[0][2]'");
  refused("/prompts/0/2", 2.5, "'prompts[0][2]'");
  refused("/prompts/0/2", nullptr, "'prompts[0][2]'");
  refused("/prompts/0", std::vector<int>(178, 1), "prompt 0 needs 178 + 20 + 3 tokens");
  refused("/max_new_tokens", 0, "'max_new_tokens'");
  refused("/max_new_tokens", {5, 5}, "2 entries for 3 prompts");
  refused("/max_new_tokens", {5, 0, 5}, "'max_new_tokens[1]'");
  refused("/max_new_tokens", nullptr, "'max_new_tokens' is missing");
  refused("/max_new_tokens", 195, "prompt 0 needs 3 + 195 + 3 tokens");
  refused("/batch_size", 5, "'batch_size' is 5; it must be 1 to 4");
  refused("/batch_size", 0, "'batch_size'");
  refused("/arrivals", {0.0, 1.0}, "2 entries for 3 prompts");
  refused("/arrivals", {0.0, -1.0, 0.0}, "'arrivals[1]'");
  refused("/arrivals", {0.0, "soon", 0.0}, "'arrivals[1]'");
  refused("/stop_ids", {50}, "'stop_ids[0]'");
  refused("/stop_ids", 3, "'stop_ids' must be a list");
  const json sampling{{"temperature", 1.0}, {"top_p", 0.9}, {"seed", 1}};
  refused("/sampling", sampling, "'sampling' is given, but 'method.acceptance' is 'greedy'");
  refused("/sampling/temperature", -0.5, "'sampling.temperature' is -0.5; it must be 0");
  refused("/sampling", {{"temperature", 1.0}, {"top_p", 0.0}, {"seed", 1}}, "'sampling.top_p' is");
  refused("/sampling", {{"temperature", 1.0}}, "'sampling.seed' is missing");
  refused("/method/acceptance/kind", "sampling", "so 'sampling' of the run must say how");
  refused("/share_prefill", 1, "'share_prefill'");
  refused("/prefill_cache", {{"clean", true}}, "'clean'");
  refused("/trace", "token", "Did you mean 'tokens'");
  refused("/trace", "tokens", "'trace_path'");
  refused("/trace_pth", "x", "Did you mean 'trace_path'");
  refused("/method", nullptr, "'method' is missing");
  refused("/method/precision", "w4a16", "was not loaded");
  refused("/method/drafter/precision", "w4a16", "was not loaded");
  refused("/method/drafter/precision", "w8a4", "Did you mean");
  refused("/method/drafter/kind", "sefl", "Did you mean 'self'");
  refused("/method/drafter/kind", "model", "'method.drafter.id' is missing");
  refused("/method/shape/kind", "chains", "Did you mean 'chain'");
  refused("/method/shape/gamma", 0, "'method.shape.gamma' is 0; it must be 1 to 63");
  refused("/method/shape/gamma", -2, "'method.shape.gamma'");
  refused("/method/shape/gamma", 64, "'method.shape.gamma'");
  refused("/method/gama", 3, "'method' has the unknown key 'gama'");
  json traced = bench.run;
  traced["trace"] = "tokens";
  bench.check_refused(traced, "/trace_path", "/no/such/folder/trace", "bad_request",
                      "/no/such/folder");
  CHECK(bench.ask(bench.run).contains("requests"));
}

TEST_CASE("bad forwards and scores are refused") {
  Bench bench;
  bench.start();
  const auto forward = [&](const std::string& pointer, const json& value, const std::string& part) {
    bench.check_refused(bench.forward, pointer, value, "bad_request", part);
  };
  forward("/tokens", json::array(), "'tokens' is empty");
  forward("/tokens", {0}, "'tokens[0]'");
  forward("/tokens", {191}, "'max_context' of 200");
  forward("/context", 201, "'context'");
  forward("/context", -1, "'context'");
  forward("/mask", "chian", "Did you mean 'chain'");
  forward("/batch", 5, "'batch'");
  forward("/repeats", 0, "'repeats'");
  forward("/model", "other", "'other'");
  forward("/precision", "w4a16", "was not loaded");
  bench.forward["mask"] = "tree";
  forward("/tokens", {65}, "it must be 1 to 64");

  const auto score = [&](const std::string& pointer, const json& value, const std::string& part) {
    bench.check_refused(bench.score, pointer, value, "bad_request", part);
  };
  score("/sequences", json::array(), "'sequences'");
  score("/sequences/1", {1}, "sequence 1 has 1 token");
  score("/sequences/1", std::vector<int>(201, 1), "sequence 1 has 201 tokens");
  score("/sequences/0/3", 50, "sequence 0, position 3");
  score("/precision", "fp61", "Did you mean 'fp16'");
  score("/reference", "w4a16", "was not loaded");
  CHECK(bench.ask(bench.score).contains("sequences"));
}

}  // namespace
}  // namespace specquant::worker
