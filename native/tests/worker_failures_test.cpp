// Requests that are refused, and hardware that fails on order, in this process.
#include <doctest/doctest.h>

#include <new>

#include "core/errors.h"
#include "tests/worker_bench.h"
#include "worker/worker.h"

namespace specquant::worker {
namespace {

using nlohmann::json;
using test::Bench;
using test::PackedParts;
using test::synthetic_of;
using test::TemporaryFile;

TEST_CASE("bad loads are refused and leave the model that was there") {
  Bench bench;
  bench.start();
  const auto refused = bench.refuser(bench.load);
  refused("/model", {{"path", "/no/such/file"}}, "/no/such/file", "model");
  json synthetic = synthetic_of(PackedParts().metadata);
  refused("/model", {{"synthetic", synthetic}, {"path", "x"}}, "'path' or");
  bench.hardware.makes_synthetic = false;
  refused("/model", {{"synthetic", synthetic}}, "no synthetic models", "unsupported");
  bench.hardware.makes_synthetic = true;
  synthetic["head_dim"] = "wide";
  refused("/model", {{"synthetic", synthetic}}, "'model.synthetic': 'head_dim' is not an integer");
  synthetic.erase("head_dim");
  refused("/model", {{"synthetic", synthetic}}, "'model.synthetic.head_dim'");
  refused("/model", {{"synthetic", {{"hidden_siz", 1}}}}, "'model.synthetic.name'");
  refused("/model", json::object(), "'path' or 'synthetic'");
  refused("/model", 3, "'model'");
  refused("/model/path", 3, "'model.path'");
  refused("/model/pth", "x", "'pth'");
  refused("/precisions", json::array(), "'precisions'");
  refused("/precisions", {"w4a44"}, "Did you mean 'w4a4'");
  refused("/precisions", {"w8a8"}, "'w8a8'", "unsupported");
  refused("/precisions", {1}, "'precisions[0]'");
  refused("/max_context", 0, "'max_context'");
  refused("/max_context", 257, "256");
  refused("/max_batch", 7, "'max_batch' is 7; it must be 1 to 6");
  refused("/max_batch", -1, "'max_batch'");
  refused("/seed", -1, "'seed'");
  refused("/sed", 1, "Did you mean 'seed'");
  const TemporaryFile truncated(PackedParts().bytes().substr(0, 4000));
  refused("/model/path", truncated.path(), "truncated", "model");
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
  const auto refused = bench.refuser(bench.run);
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
  const auto forward = bench.refuser(bench.forward);
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

  const auto score = bench.refuser(bench.score);
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
