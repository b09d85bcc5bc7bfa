// The metadata of a packed file: its fields, the model's shape, and the tensors that follow from
// it. Every function throws std::invalid_argument with the end of a sentence about what is wrong.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "decode/device.h"

namespace specquant::core {

constexpr int kPackedTileRows = 16;
constexpr int kMaxPackedDimension = 1 << 24;  // keeps every product of sizes below 2^63

const nlohmann::json& field(const nlohmann::json& object, const std::string& key);
int integer_field(const nlohmann::json& object, const std::string& key, int low, int high);
std::string text_field(const nlohmann::json& object, const std::string& key);

ModelShape shape_of(const nlohmann::json& metadata);

// A tensor that a model of some shape has.
struct ExpectedTensor {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  bool vector = false;  // of kind f32
};
std::vector<ExpectedTensor> expected_tensors(const ModelShape& shape);

}  // namespace specquant::core
