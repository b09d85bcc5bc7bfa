// Draft heads in the worker's calls: from files and synthetic ones, and whose they must be.
#include <doctest/doctest.h>

#include "core/synthetic_model.h"
#include "tests/drafter_bench.h"

namespace specquant::worker {
namespace {

using nlohmann::json;
using test::DrafterBench;
using test::kTree;
using test::named;
using test::PackedParts;
using test::TemporaryFile;

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
  const auto refused = bench.refuser(bench.load);
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
  const auto refused = bench.refuser(bench.load, "/drafters/2/synthetic/");
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

}  // namespace
}  // namespace specquant::worker
