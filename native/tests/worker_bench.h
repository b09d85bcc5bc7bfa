// A worker over fake hardware, with requests that it takes.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/fake_hardware.h"
#include "tests/packed_parts.h"
#include "tests/temporary_file.h"
#include "worker/worker.h"

namespace specquant::test {

using nlohmann::json;

// A worker with a model in it, and requests that it takes, to be spoiled.
struct Bench {
  FakeHardware hardware;
  worker::Worker worker{hardware};
  TemporaryFile model{PackedParts().bytes()};
  json load = {{"id", 1},
               {"call", "load"},
               {"model", {{"path", model.path()}}},
               {"precisions", {"fp16", "w4a4"}},
               {"drafters", json::array()},
               {"max_context", 200},
               {"max_batch", 4},
               {"seed", 1}};
  json run = {{"id", 2},
              {"call", "run"},
              {"method",
               {{"precision", "fp16"},
                {"kv_precision", "kv16"},
                {"drafter", {{"kind", "self"}, {"precision", "w4a4"}}},
                {"shape", {{"kind", "chain"}, {"gamma", 3}}},
                {"acceptance", {{"kind", "greedy"}}}}},
              {"prompts", {{1, 2, 3}, {4, 5}, {6}}},
              {"arrivals", nullptr},
              {"batch_size", 2},
              {"max_new_tokens", 20},
              {"stop_ids", {49}},
              {"sampling", nullptr},
              {"share_prefill", false},
              {"trace", "rounds"},
              {"trace_path", nullptr}};
  json forward = {{"id", 3},
                  {"call", "forward"},
                  {"model", "target"},
                  {"precision", "fp16"},
                  {"tokens", {1, 2, 4}},
                  {"mask", "chain"},
                  {"context", 10},
                  {"batch", 2},
                  {"repeats", 3}};
  json score = {{"id", 4},
                {"call", "score"},
                {"sequences", {{1, 2, 3, 4}, {5, 6}}},
                {"precision", "w4a4"},
                {"reference", "fp16"}};

  json ask(const json& request) { return json::parse(worker.answer(request.dump())); }
  json ask_text(const std::string& line) { return json::parse(worker.answer(line)); }
  void start() { REQUIRE_FALSE(ask(load).contains("error")); }

  void check_refused(const json& answer, const std::string& type, const std::string& part) {
    INFO(answer.dump());
    REQUIRE(answer.contains("error"));
    CHECK(answer["error"]["type"] == type);
    CHECK(answer["error"]["message"].get<std::string>().find(part) != std::string::npos);
  }
  // The request with one value put elsewhere, by JSON pointer.
  void check_refused(json request, const std::string& pointer, const json& value,
                     const std::string& type, const std::string& part) {
    request[json::json_pointer(pointer)] = value;
    check_refused(ask(request), type, part);
  }
  // check_refused() of one request, as it is when the check is called; pointers go on from `below`.
  auto refuser(const json& request, const std::string& below = "") {
    return
        [this, &request, below](const std::string& pointer, const json& value,
                                const std::string& part, const std::string& type = "bad_request") {
          check_refused(request, below + pointer, value, type, part);
        };
  }
};

// The request for a model without a file, of the shape that a packed file's metadata have.
inline nlohmann::json synthetic_of(const nlohmann::json& metadata) {
  nlohmann::json synthetic = {{"name", "made up"}, {"seed", 7}};
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
        "vocab_size", "max_position", "rope_theta", "rms_norm_eps", "tied_head"}) {
    synthetic[key] = metadata.at(key);
  }
  return synthetic;
}

}  // namespace specquant::test
