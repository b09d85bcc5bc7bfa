// A model without a file: a shape, and weights that a device draws from a seed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "decode/device.h"

namespace specquant::core {

struct SyntheticModel {
  std::string name;  // shown in reports
  ModelShape shape;
  uint64_t seed = 1;

  // sha256 of the shape and the seed: the model's content, as a packed file's hash is of its.
  std::string content_hash() const;
};

// Reads `{name, seed, ...}` with the shape's keys of docs/packed-format.md, all needed; `path`
// stands in messages. Throws Error of type `bad_request` that names the key.
SyntheticModel synthetic_model_of(const nlohmann::json& value, const std::string& path);

}  // namespace specquant::core
