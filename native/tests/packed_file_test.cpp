// The reader of packed files: what it reads, and how it refuses what is damaged.
#include "core/packed_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "core/plain_layers.h"
#include "core/sha256.h"
#include "tests/packed_parts.h"

namespace specquant::core {
namespace {

using test::AlignedBytes;
using test::PackedParts;

// What the reader says of these bytes: "" where it takes them.
std::string verdict(const std::string& bytes) {
  const AlignedBytes aligned(bytes);
  try {
    const PackedFile file(aligned.view(), "tiny.packed");
    return "";
  } catch (const Error& error) {
    CHECK(error.type() == ErrorType::model);
    const std::string message = error.what();
    CHECK(message.find("tiny.packed") != std::string::npos);
    return message;
  }
}

std::string verdict_after(const std::function<void(PackedParts&)>& spoil) {
  PackedParts builder;
  spoil(builder);
  return verdict(builder.bytes());
}

void check_says(const std::string& message, const std::string& part) {
  INFO(message);
  CHECK(message.find(part) != std::string::npos);
}

TEST_CASE("a valid file gives its shape and tensors") {
  const AlignedBytes bytes(PackedParts().bytes());
  const PackedFile file(bytes.view(), "tiny.packed");
  CHECK(file.name() == "tiny");
  CHECK(file.weight_format() == "q4_1");
  CHECK(file.shape().hidden == 64);
  CHECK(file.shape().kv_heads == 1);
  CHECK(file.shape().vocabulary == 50);
  CHECK(file.shape().tied_head);
  CHECK(file.shape().rope_theta == 10000.0F);
  CHECK(&file.embedding() == &file.head());
  const TensorView& qkv = file.layer_tensor(1, "qkv");
  CHECK(qkv.kind == TensorKind::affine4);
  CHECK(qkv.rows == 128);
  CHECK(qkv.cols == 64);
  CHECK(qkv.group == 64);
  CHECK(qkv.bytes.size() == 8 * (64 * 8 + 64));
  CHECK(file.head().bytes.size() == 4 * 2 * (32 * 16 + 32));  // 50 rows fill four tiles
  CHECK(file.tensor("final_norm").floats().size() == 64);
  CHECK(file.tensors().size() == 14);
  for (const auto& [name, view] : file.tensors()) {
    CHECK(reinterpret_cast<uintptr_t>(view.bytes.data()) % 64 == 0);
  }
  CHECK_THROWS_AS(file.tensor("layers.2.qkv"), Error);
}

TEST_CASE("a file is mapped from disk, and what is no file is named") {
  const auto path =
      std::filesystem::temp_directory_path() / ("packed_file_test_" + std::to_string(getpid()));
  { std::ofstream(path, std::ios::binary) << PackedParts().bytes(); }
  CHECK(PackedFile(path.string()).name() == "tiny");
  { std::ofstream(path, std::ios::binary | std::ios::trunc); }
  CHECK_THROWS_WITH_AS(PackedFile(path.string()),
                       ("Model file " + path.string() + ": it is empty.").c_str(), Error);
  std::filesystem::remove(path);
  CHECK_THROWS_AS(PackedFile(path.string()), Error);
  CHECK_THROWS_AS(PackedFile("/tmp"), Error);
}

TEST_CASE("a file cut anywhere is refused") {
  const std::string whole = PackedParts().bytes();
  CHECK(verdict(whole).empty());
  for (std::size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 61) {
    CAPTURE(size);
    CHECK_FALSE(verdict(whole.substr(0, size)).empty());
  }
  CHECK_FALSE(verdict(whole.substr(0, whole.size() - 1)).empty());
}

TEST_CASE("an absurd header length is refused without reading it") {
  std::string bytes = PackedParts().bytes();
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{7}}) {
    std::memcpy(bytes.data(), &length, sizeof(length));
    check_says(verdict(bytes), "absurd");
  }
}

TEST_CASE("a header that is not the format's JSON is refused") {
  check_says(verdict(PackedParts::with_header("not JSON", "")), "cannot read the header");
  check_says(verdict(PackedParts::with_header("[1, 2]", "")), "cannot read the header");
  check_says(verdict(PackedParts::with_header("{\"a\": \"\xff\"}", "")), "cannot read the header");
  check_says(verdict(PackedParts::with_header(std::string(100000, '['), "")), "nests deeper");
  check_says(verdict(PackedParts::with_header("{}", "")), "no metadata entry 'specquant'");
  check_says(verdict(PackedParts::with_header(R"({"__metadata__": {"specquant": 3}})", "")),
             "'specquant' is not a text");
  check_says(verdict(PackedParts::with_header(R"({"__metadata__": {"specquant": "{"}})", "")),
             "cannot read the metadata entry 'specquant'");
}

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

TEST_CASE("a tensor that does not fit its description is refused by name") {
  const auto described = [](const char* key, const nlohmann::json& value) {
    return verdict_after(
        [&](PackedParts& builder) { builder.metadata["tensors"]["layers.1.o"][key] = value; });
  };
  const auto placed = [](const char* key, const nlohmann::json& value) {
    return verdict_after([&](PackedParts& builder) { builder.tensors["layers.1.o"][key] = value; });
  };
  for (const std::string& message : {described("kind", "affine3"),
                                     described("kind", "affine8"),
                                     described("kind", "f32"),
                                     described("rows", 65),
                                     described("rows", -1),
                                     described("cols", 48),
                                     described("group", 0),
                                     described("group", 48),
                                     described("group", 128),
                                     described("group", 64),
                                     described("rows", nullptr),
                                     placed("dtype", "F16"),
                                     placed("dtype", 3),
                                     placed("data_offsets", {64, 0}),
                                     placed("data_offsets", {1, 2561}),
                                     placed("data_offsets", {-64, 2560}),
                                     placed("data_offsets", {0, 18446744073709551615U}),
                                     placed("data_offsets", {0}),
                                     placed("data_offsets", "0"),
                                     placed("shape", {1, 2560}),
                                     placed("shape", {2559})}) {
    check_says(message, "tensor 'layers.1.o'");
  }
  check_says(verdict_after([](PackedParts& b) { b.tensors.erase("layers.1.o"); }), "has no data");
  check_says(verdict_after([](PackedParts& b) { b.tensors["extra"] = b.tensors["head"]; }),
             "tensor 'extra' does not belong");
  check_says(verdict_after([](PackedParts& b) {
               b.tensors["layers.1.o"]["data_offsets"] = b.tensors["layers.0.o"]["data_offsets"];
             }),
             "tensors 'layers.0.o' and 'layers.1.o' overlap");
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

// What an engine that serves plain layers alone says of a file: "" where it takes it.
std::string plainness_after(const std::function<void(PackedParts&)>& change) {
  PackedParts builder;
  change(builder);
  const AlignedBytes bytes(builder.bytes());
  const PackedFile file(bytes.view(), "tiny.packed");
  try {
    require_plain_layers(file, "CUDA engine");
    return "";
  } catch (const Error& error) {
    CHECK(error.type() == ErrorType::unsupported);
    return error.what();
  }
}

TEST_CASE("an engine for plain layers names what it cannot serve") {
  CHECK(plainness_after([](PackedParts&) {}).empty());
  check_says(plainness_after([](PackedParts& parts) {
               parts.add("layers.0.qkv_bias", "f32", 128, 1, 0);
               parts.add("layers.1.qkv_bias", "f32", 128, 1, 0);
             }),
             "tensor 'layers.0.qkv_bias', which the CUDA engine cannot serve");
  check_says(plainness_after([](PackedParts& parts) {
               for (const std::string layer : {"layers.0.", "layers.1."}) {
                 parts.add(layer + "q_norm", "f32", 32, 1, 0);
                 parts.add(layer + "k_norm", "f32", 32, 1, 0);
               }
             }),
             "tensor 'layers.0.q_norm'");
  check_says(plainness_after([](PackedParts& parts) {
               parts.add("layers.1.down_columns", "i32", 32, 1, 0);
               const auto begin =
                   parts.tensors["layers.1.down_columns"]["data_offsets"][0].get<std::size_t>();
               for (int32_t i = 0; i < 32; ++i) {
                 std::memcpy(parts.data.data() + begin + 4 * static_cast<std::size_t>(i), &i, 4);
               }
             }),
             "tensor 'layers.1.down_columns'");
  check_says(plainness_after([](PackedParts& parts) { parts.metadata["hadamard"] = {"down"}; }),
             "'hadamard'");
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

TEST_CASE("random damage leads to typed errors alone") {
  std::mt19937 random(1);
  const std::string whole = PackedParts().bytes();
  const std::size_t header = whole.size() - PackedParts().data.size();
  int refused = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    std::string bytes = whole;
    for (auto flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % header] ^= static_cast<char>(1U << (random() % 8));
    }
    if (!verdict(bytes).empty()) ++refused;
  }
  CHECK(refused > 4000);
}

TEST_CASE("SHA-256 of the examples of FIPS 180") {
  const auto hash = [](const std::string& text) {
    return sha256_hex(std::as_bytes(std::span(text)));
  };
  CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hash(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace specquant::core
