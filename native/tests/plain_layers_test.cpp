// What an engine that serves plain layers alone says of a packed file.
#include "core/plain_layers.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>

#include "tests/messages.h"
#include "tests/packed_parts.h"

namespace specquant::core {
namespace {

using test::AlignedBytes;
using test::check_says;
using test::PackedParts;

// The message for the file that `change` makes: "" where it is taken.
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

}  // namespace
}  // namespace specquant::core
