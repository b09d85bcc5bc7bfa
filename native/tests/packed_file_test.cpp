// The reader of packed files: how it maps them, and how it refuses damaged bytes.
#include "core/packed_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "tests/messages.h"
#include "tests/packed_verdict.h"
#include "tests/temporary_file.h"

namespace specquant::core {
namespace {

using test::AlignedBytes;
using test::check_says;
using test::PackedParts;
using test::verdict;
using test::verdict_after;

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
  std::string gone;
  {
    const test::TemporaryFile file(PackedParts().bytes());
    gone = file.path();
    CHECK(PackedFile(file.path()).name() == "tiny");
    { std::ofstream(file.path(), std::ios::binary | std::ios::trunc); }
    CHECK_THROWS_WITH_AS(PackedFile(file.path()),
                         ("Model file " + file.path() + ": it is empty.").c_str(), Error);
  }
  CHECK_THROWS_AS(PackedFile{gone}, Error);
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

}  // namespace
}  // namespace specquant::core
