// Loaded drafters in the worker's calls: load, run, forward and what each refuses.
#include <doctest/doctest.h>

#include "core/errors.h"
#include "tests/worker_bench.h"

namespace specquant::worker {
namespace {

using nlohmann::json;
using test::Bench;
using test::PackedParts;
using test::TemporaryFile;

PackedParts named(const std::string& name) {
  PackedParts parts;
  parts.metadata["name"] = name;
  parts.metadata["content_hash"] = name;
  return parts;
}

// A head for the model with this content, reading its last residual stream.
PackedParts head_for(const std::string& content_hash) {
  PackedParts parts = named("head");
  parts.metadata["architecture"] = "eagle2";
  parts.metadata["num_layers"] = 1;
  parts.metadata["tied_head"] = false;
  parts.metadata["target"] = {
      {"content_hash", content_hash}, {"hidden_size", 64}, {"num_layers", 2}, {"taps", {3}}};
  parts.metadata["tensors"] = parts.tensors = json::object();
  parts.data.clear();
  parts.add("fc", "f16", 64, 128, 0);
  parts.add("layers.0.qkv", "affine4", 128, 64, 64);
  parts.add("layers.0.o", "affine4", 64, 64, 32);
  parts.add("layers.0.gate_up", "f16", 64, 64, 0);
  parts.add("layers.0.down", "bf16", 64, 32, 0);
  parts.add("layers.0.mlp_norm", "f32", 64, 1, 0);
  return parts;
}

const json kTree = {{"kind", "tree"}, {"depth", 3}, {"top_k", 3}, {"nodes", 8}};

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

// A worker whose load has a model and two heads, one for the target and one for the model.
struct HeadBench : DrafterBench {
  TemporaryFile head{head_for("none").bytes()};
  TemporaryFile middles_head{head_for("middle").bytes()};

  HeadBench() {
    load["drafters"] = {
        {{"id", "middles"},
         {"path", middles_head.path()},
         {"precisions", {"w4a4"}},
         {"target", "middle"}},
        {{"id", "middle"}, {"path", middle.path()}, {"precisions", {"w4a16"}}},
        {{"id", "head"}, {"path", head.path()}, {"precisions", {"w4a4"}}, {"target", nullptr}}};
    run["method"]["drafter"] = {{"kind", "head"}, {"id", "head"}, {"precision", "w4a4"}};
  }
};

TEST_CASE("heads draft for the model that they were trained for") {
  HeadBench bench;
  bench.start();
  const json expected = bench.plain_tokens();
  const json chain = bench.ask(bench.run);
  CHECK(DrafterBench::tokens_of(chain) == expected);
  CHECK(chain["sequence_rounds"]["drafted"][0] == 3);
  bench.run["method"]["shape"] = kTree;
  bench.run["share_prefill"] = true;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const json tree = bench.ask(bench.run);
    CHECK(DrafterBench::tokens_of(tree) == expected);
    CHECK(tree["requests"][0]["ttft_shared"] == (repeat == 1));
  }
  bench.use_cascade();
  bench.run["method"]["drafter"]["inner"] = {
      {"kind", "head"}, {"id", "middles"}, {"precision", "w4a4"}};
  CHECK(DrafterBench::tokens_of(bench.ask(bench.run)) == expected);
  bench.check_refused(bench.run, "/method/drafter/inner/id", "head", "bad_request",
                      "'method.drafter.inner.id' is 'head', a head for 'target'; here it would "
                      "draft for 'middle'");
  bench.check_refused(bench.run, "/method/drafter/id", "head", "bad_request",
                      "which is a draft head; its kind is 'head'");
  bench.forward["model"] = "head";
  bench.forward["precision"] = "w4a4";
  CHECK(bench.ask(bench.forward)["times"].contains("4"));
}

TEST_CASE("a head is refused where its target is not, or is another model") {
  HeadBench bench;
  const auto refused = [&](const std::string& pointer, const json& value, const std::string& part) {
    bench.check_refused(bench.load, pointer, value, "bad_request", part);
  };
  refused("/drafters/0/target", "target",
          "'drafters[0]': the drafter 'middles' (head) was trained for the model with the content "
          "'middle', and 'target' (tiny) has 'none'. Train a head");
  refused("/drafters/0/target", "midle", "'drafters[0].target' is 'midle'");
  refused("/drafters/0/target", "midle", "Did you mean 'middle'?");
  refused("/drafters/0/target", "head", "'drafters[0].target' is 'head', which is no model");
  refused("/drafters/1/target", "middle", "'drafters[1].target' belongs to draft heads");
  refused("/model/path", bench.head.path(), "'model' is the draft head 'head'");
  CHECK(bench.hardware.loads == 0);
}

// A head of EAGLE-3's layout without a file, for a model of two layers of width 64.
json synthetic_head() {
  const json metadata = PackedParts().metadata;
  json head = {{"name", "made-up head"}, {"seed", 3}, {"architecture", "eagle3"}};
  for (const char* key : {"hidden_size", "intermediate_size", "num_heads", "num_kv_heads",
                          "head_dim", "vocab_size", "max_position", "rope_theta", "rms_norm_eps"}) {
    head[key] = metadata.at(key);
  }
  head["num_layers"] = 1;
  head["tied_head"] = false;
  head["draft_vocab_size"] = 20;
  head["target"] = {{"hidden_size", 64}, {"num_layers", 2}, {"taps", {0, 1, 2}}};
  return head;
}

TEST_CASE("a synthetic head drafts for a model of the shape that it names") {
  HeadBench bench;
  bench.load["drafters"][2] = {
      {"id", "head"}, {"synthetic", synthetic_head()}, {"precisions", {"w4a4"}}};
  const json loaded = bench.ask(bench.load);
  CHECK(loaded["drafters"]["head"]["model"]["name"] == "made-up head");
  CHECK(bench.hardware.taps == std::vector<int>{0, 1, 2});
  CHECK(bench.hardware.reduced == 20);
  const json expected = bench.plain_tokens();
  CHECK(DrafterBench::tokens_of(bench.ask(bench.run)) == expected);
  bench.run["method"]["shape"] = kTree;
  CHECK(DrafterBench::tokens_of(bench.ask(bench.run)) == expected);
  // Another reduced vocabulary is another head.
  bench.load["drafters"][2]["synthetic"]["draft_vocab_size"] = 21;
  CHECK(bench.ask(bench.load)["drafters"]["head"]["model"]["content_hash"] !=
        loaded["drafters"]["head"]["model"]["content_hash"]);
}

TEST_CASE("the reduced vocabulary of a synthetic head spreads over the whole") {
  core::SyntheticModel head;
  head.shape.vocabulary = 10;
  CHECK(head.draft_tokens().empty());
  head.draft_vocabulary = 4;
  CHECK(head.draft_tokens() == std::vector<int32_t>{0, 2, 5, 7});
  head.draft_vocabulary = 10;
  CHECK(head.draft_tokens() == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("a synthetic head that does not hang together is refused by its key") {
  HeadBench bench;
  bench.load["drafters"][2] = {
      {"id", "head"}, {"synthetic", synthetic_head()}, {"precisions", {"w4a4"}}};
  const auto refused = [&](const std::string& key, const json& value, const std::string& part) {
    bench.check_refused(bench.load, "/drafters/2/synthetic/" + key, value, "bad_request", part);
  };
  const std::string place = "'drafters[2].synthetic";
  refused("architecture", "eagle2", place + ".architecture' is 'eagle2'; synthetic draft heads");
  refused("architecture", "llama", "Leave it out for a model");
  refused("architecture", nullptr, place + "' has the unknown key 'draft_vocab_size'");
  refused("draft_vocab_size", 0, place + ".draft_vocab_size' is 0");
  refused("draft_vocab_size", 51, place + ".draft_vocab_size' is 51");
  refused("draft_vocab", 4, place + "' has the unknown key 'draft_vocab'");
  refused("tied_head", true, place + "': 'tied_head' is true for a draft head.");
  refused("target", nullptr, place + ".target'");
  refused("target/tap", 1, place + ".target' has the unknown key 'tap'");
  refused("target/taps", json::array(), "'taps' is not a list of 1 to");
  refused("target/taps", {0, 4}, "'taps'");
  refused("target/taps", {1}, "the target's features are as wide as the eagle3 head's own.");
  refused("target/hidden_size", 128,
          place +
              ".target': the drafter 'head' (made-up head) reads a model of 2 layers of width "
              "128, and 'target' (tiny) has 2 of 64. Give the head the shape");
  refused("target/num_layers", 3, "reads a model of 3 layers of width 64");
  bench.check_refused(bench.load, "/drafters/2/target", "midle", "bad_request",
                      "Did you mean 'middle'?");
  bench.check_refused(bench.load, "/model", json{{"synthetic", synthetic_head()}}, "bad_request",
                      "'model' is the draft head 'made-up head'");
  CHECK(bench.hardware.loads == 0);
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
  const auto refused = [&](const std::string& pointer, const json& value, const std::string& part,
                           const std::string& type = "bad_request") {
    bench.check_refused(bench.load, pointer, value, type, part);
  };
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
  const auto refused = [&](const std::string& pointer, const json& value, const std::string& part) {
    bench.check_refused(bench.run, pointer, value, "bad_request", part);
  };
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
