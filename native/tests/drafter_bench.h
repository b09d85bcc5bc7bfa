// A worker with drafters beside its model.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/worker_bench.h"

namespace specquant::test {

// The tiny model under another name.
inline PackedParts named(const std::string& name) {
  PackedParts parts;
  parts.metadata["name"] = name;
  parts.metadata["content_hash"] = name;
  return parts;
}

inline const json kTree = {{"kind", "tree"}, {"depth", 3}, {"top_k", 3}, {"nodes", 8}};

// A worker whose load has two models as drafters.
struct DrafterBench : Bench {
  TemporaryFile small{named("small").bytes()};
  TemporaryFile middle{named("middle").bytes()};

  DrafterBench() {
    load["drafters"] = {
        {{"id", "small"}, {"path", small.path()}, {"precisions", {"w4a4"}}},
        {{"id", "middle"}, {"path", middle.path()}, {"precisions", {"w4a16", "w4a4"}}}};
    run["method"]["drafter"] = {{"kind", "model"}, {"id", "small"}, {"precision", "w4a4"}};
  }
  void use_cascade() {
    run["method"]["shape"] = {{"kind", "chain"}, {"gamma", 5}};
    run["method"]["drafter"] = {
        {"kind", "cascade"},
        {"id", "middle"},
        {"precision", "w4a16"},
        {"inner", {{"kind", "model"}, {"id", "small"}, {"precision", "w4a4"}}},
        {"inner_shape", kTree}};
  }
  json plain_tokens() {
    json plain = run;
    plain["method"] = {{"precision", "fp16"}};
    return tokens_of(ask(plain));
  }
  static json tokens_of(const json& answer) {
    INFO(answer.dump());
    REQUIRE(answer.contains("requests"));
    json tokens = json::array();
    for (const json& request : answer["requests"]) tokens.push_back(request["tokens"]);
    return tokens;
  }
};

}  // namespace specquant::test
