// What the metadata of a packed file may say, and how it is refused where its parts disagree.
#include "core/packed_metadata.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>

#include "core/packed_file.h"
#include "tests/messages.h"
#include "tests/packed_verdict.h"

namespace specquant::core {
namespace {

using test::AlignedBytes;
using test::check_says;
using test::PackedParts;
using test::verdict;
using test::verdict_after;

TEST_CASE("another version, architecture or shape is refused") {
  const auto with = [](const char* key, const nlohmann::json& value) {
    return verdict_after([&](PackedParts& builder) { builder.metadata[key] = value; });
  };
  check_says(with("format_version", 2), "format_version");
  check_says(with("architecture", "gpt2"), "'gpt2'");
  check_says(with("hidden_size", 0), "'hidden_size'");
  check_says(with("hidden_size", 96), "tensor 'head': it is 50 x 64");
  check_says(with("hidden_size", 1e300), "'hidden_size'");
  check_says(with("num_layers", 3), "tensor 'layers.2.qkv': it is missing");
  check_says(with("num_layers", 1), "does not belong");
  check_says(with("num_layers", 18446744073709551615U), "'num_layers'");
  check_says(with("num_kv_heads", 3), "'num_kv_heads'");
  check_says(with("head_dim", 31), "'head_dim'");
  check_says(with("vocab_size", 49), "tensor 'head'");
  check_says(with("rope_theta", -1.0), "'rope_theta'");
  check_says(with("tied_head", 1), "'tied_head'");
  check_says(with("tied_head", false), "tensor 'embed': it is missing");
  check_says(with("tensors", nlohmann::json::array()), "'tensors'");
  check_says(with("name", nullptr), "'name'");
  const PackedParts whole;
  for (const auto& [key, value] : whole.metadata.items()) {
    check_says(verdict_after([&](PackedParts& builder) { builder.metadata.erase(key); }),
               "'" + key + "' is missing");
  }
}

// The file with an untied head of four rows, for these tokens.
std::string reduced(
    const std::vector<int32_t>& tokens,
    const std::function<void(PackedParts&)>& spoil = [](PackedParts&) {}) {
  return verdict_after([&](PackedParts& parts) {
    parts.metadata["tied_head"] = false;
    parts.metadata["tensors"].erase("head");
    parts.tensors.erase("head");
    parts.add("head", "f16", 4, 64, 0);
    parts.add("embed", "affine8", 50, 64, 32);
    parts.add("draft_tokens", "i32", static_cast<int>(tokens.size()), 1, 0);
    std::memcpy(parts.data.data() + parts.data.size() - 4 * tokens.size(), tokens.data(),
                4 * tokens.size());
    spoil(parts);
  });
}

TEST_CASE("a reduced vocabulary has a rising token for each row of the head") {
  CHECK(reduced({0, 7, 8, 49}).empty());
  check_says(reduced({0, 7, 49}), "tensor 'head': it is 4 x 64");
  for (const std::vector<int32_t>& tokens :
       {std::vector{0, 8, 7, 49}, {0, 7, 7, 49}, {-1, 7, 8, 49}, {0, 7, 8, 50}}) {
    check_says(reduced(tokens), "tensor 'draft_tokens': its tokens do not rise");
  }
  check_says(reduced({0, 7, 8, 49}, [](PackedParts& p) { p.metadata["tied_head"] = true; }),
             "'tied_head' is true beside tensor 'draft_tokens'");
  check_says(
      reduced({0, 7, 8, 49}, [](PackedParts& p) { p.tensors["draft_tokens"]["dtype"] = "F32"; }),
      "tensor 'draft_tokens': its dtype is not I32");
  check_says(reduced({0, 7, 8, 49},
                     [](PackedParts& p) { p.metadata["tensors"]["draft_tokens"]["cols"] = 2; }),
             "tensor 'draft_tokens': a vector of kind i32");
  check_says(reduced({0, 7, 8, 49},
                     [](PackedParts& p) { p.metadata["tensors"]["draft_tokens"]["kind"] = "f32"; }),
             "tensor 'draft_tokens': it is 4 x 1 of kind f32");
}

TEST_CASE("columns in an order of their own are each named once") {
  const auto order = [](PackedParts& parts, int32_t first) {
    parts.add("layers.1.o_columns", "i32", 64, 1, 0);
    const auto begin = parts.tensors["layers.1.o_columns"]["data_offsets"][0].get<std::size_t>();
    for (int32_t i = 0; i < 64; ++i) {
      const int32_t column = i == 0 ? first : 63 - i;
      std::memcpy(parts.data.data() + begin + 4 * static_cast<std::size_t>(i), &column, 4);
    }
  };
  CHECK(verdict_after([&](PackedParts& parts) { order(parts, 63); }).empty());
  for (const int32_t wrong : {-1, 0, 64}) {
    check_says(verdict_after([&](PackedParts& parts) { order(parts, wrong); }),
               "tensor 'layers.1.o_columns': it does not name each column once");
  }
}

TEST_CASE("positions and transforms are read, or refused by what is wrong with them") {
  const auto with = [](const char* key, const nlohmann::json& value) {
    return verdict_after([&](PackedParts& parts) { parts.metadata[key] = value; });
  };
  const nlohmann::json llama3 = {{"type", "llama3"},
                                 {"factor", 8.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position", 8192}};
  CHECK(with("rope_scaling", nullptr).empty());
  CHECK(with("rope_scaling", llama3).empty());
  CHECK(with("rope_scaling", {{"type", "linear"}, {"factor", 2.0}}).empty());
  check_says(with("rope_scaling", 2), "'rope_scaling' is not an object");
  check_says(with("rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}),
             "'rope_scaling' has the type 'yarn'");
  check_says(with("rope_scaling", {{"type", "linear"}, {"factor", -2.0}}), "'factor'");
  for (const auto& [key, value] : llama3.items()) {
    nlohmann::json less = llama3;
    less.erase(key);
    check_says(with("rope_scaling", less), "'" + key + "' is missing");
  }
  nlohmann::json swapped = llama3;
  swapped["low_freq_factor"] = 4.0;
  check_says(with("rope_scaling", swapped), "'high_freq_factor' is not above");

  CHECK(with("hadamard", {"o"}).empty());  // 64 inputs
  CHECK(with("hadamard", {"down"}).empty());
  check_says(with("hadamard", "down"), "'hadamard' is not a list");
  check_says(with("hadamard", {"qkv"}), "'hadamard' may list 'down' and 'o', not \"qkv\"");
  check_says(verdict_after([](PackedParts& parts) {
               parts.metadata["hadamard"] = {"down"};
               parts.metadata["intermediate_size"] = 736;  // 23 · 32 needs order 92
             }),
             "there is no Hadamard transform of its 736 inputs");
}

TEST_CASE("optional tensors stand in every layer or in none, in their shape") {
  const auto with = [](const std::function<void(PackedParts&)>& add) { return verdict_after(add); };
  CHECK(with([](PackedParts& parts) {
          for (const std::string layer : {"layers.0.", "layers.1."}) {
            parts.add(layer + "qkv_bias", "f32", 128, 1, 0);
            parts.add(layer + "q_norm", "f32", 32, 1, 0);
            parts.add(layer + "k_norm", "f32", 32, 1, 0);
          }
        }).empty());
  check_says(with([](PackedParts& p) { p.add("layers.0.qkv_bias", "f32", 128, 1, 0); }),
             "tensor 'layers.1.qkv_bias': it is missing");
  check_says(with([](PackedParts& p) { p.add("layers.1.qkv_bias", "f32", 128, 1, 0); }),
             "tensor 'layers.1.qkv_bias' does not belong");
  check_says(with([](PackedParts& p) { p.add("layers.0.q_norm", "f32", 32, 1, 0); }),
             "tensor 'layers.0.k_norm': it is missing");
  check_says(with([](PackedParts& p) { p.add("layers.0.qkv_bias", "f32", 64, 1, 0); }),
             "tensor 'layers.0.qkv_bias': it is 64 x 1");
}

// A head of one layer for a target of width 64, with every tensor of its own.
struct HeadParts : PackedParts {
  explicit HeadParts(bool eagle3) {
    metadata["architecture"] = eagle3 ? "eagle3" : "eagle2";
    metadata["num_layers"] = 1;
    metadata["tied_head"] = false;
    metadata["target"] = {{"content_hash", "t"},
                          {"hidden_size", 64},
                          {"num_layers", 4},
                          {"taps", eagle3 ? nlohmann::json{0, 2, 5} : nlohmann::json{5}}};
    for (const char* part : {"qkv", "o", "gate_up", "down", "attn_norm", "mlp_norm"}) {
      drop(std::string("layers.1.") + part);
    }
    if (eagle3) {
      drop("layers.0.qkv");
      add("layers.0.qkv", "affine4", 128, 128, 64);
      add("feature_fc", "affine4", 64, 192, 64);
      add("embed_norm", "f32", 64, 1, 0);
    } else {
      add("fc", "affine4", 64, 128, 64);
    }
  }
  void drop(const std::string& name) {
    metadata["tensors"].erase(name);
    tensors.erase(name);
  }
};

TEST_CASE("draft heads are read, and refused where they do not hang together") {
  const auto with = [](bool eagle3, const std::function<void(HeadParts&)>& spoil) {
    HeadParts parts(eagle3);
    spoil(parts);
    return verdict(parts.bytes());
  };
  const auto nothing = [](HeadParts&) {};
  CHECK(with(false, nothing).empty());
  CHECK(with(true, nothing).empty());
  CHECK(with(false, [](HeadParts& p) {
          for (const char* name : {"head", "final_norm", "layers.0.attn_norm"}) p.drop(name);
        }).empty());
  CHECK(with(true, [](HeadParts& p) { p.drop("head"); }).empty());
  check_says(with(true, [](HeadParts& p) { p.drop("final_norm"); }), "'final_norm': it is missing");
  check_says(with(true, [](HeadParts& p) { p.drop("embed_norm"); }), "'embed_norm': it is missing");
  check_says(with(false, [](HeadParts& p) { p.drop("fc"); }), "tensor 'fc': it is missing");
  check_says(with(false, [](HeadParts& p) { p.metadata.erase("target"); }), "'target' is missing");
  check_says(with(false, [](HeadParts& p) { p.metadata["target"]["taps"] = {6}; }), "'taps'");
  check_says(with(false,
                  [](HeadParts& p) {
                    p.metadata["target"]["taps"] = {0, 5};
                  }),
             "an eagle2 head takes one tap of a target as wide as itself");
  check_says(with(true, [](HeadParts& p) { p.metadata["target"]["taps"] = {5}; }),
             "as wide as the eagle3 head's own");
  check_says(with(true,
                  [](HeadParts& p) {
                    p.metadata["target"]["taps"] = {0, 5};
                  }),
             "tensor 'feature_fc': it is 64 x 192 of kind affine4 where the model needs 64 x 128");
  CHECK(with(true, [](HeadParts& p) { p.metadata["norm_before_residual"] = true; }).empty());
  check_says(with(true, [](HeadParts& p) { p.metadata["norm_before_residual"] = 1; }),
             "'norm_before_residual' is not true or false");
  check_says(with(false, [](HeadParts& p) { p.metadata["norm_before_residual"] = true; }),
             "for a head that is not eagle3");
  check_says(with(true, [](HeadParts& p) { p.metadata["tied_head"] = true; }),
             "'tied_head' is true for a draft head");

  const AlignedBytes bytes(HeadParts(true).bytes());
  const PackedFile file(bytes.view(), "tiny.packed");
  CHECK(file.shape().feature_width == 192);
  CHECK(file.metadata().target->taps == std::vector{0, 2, 5});
  CHECK(file.metadata().target->content_hash == "t");
}

}  // namespace
}  // namespace specquant::core
