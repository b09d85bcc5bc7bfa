// A model or draft head without a file: a shape, and weights that a device draws from a seed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/packed_metadata.h"
#include "decode/device.h"

namespace specquant::core {

struct SyntheticModel {
  std::string name;  // shown in reports
  ModelShape shape;  // of a head its feature width too
  uint64_t seed = 1;
  // Of an EAGLE-3 head: what it reads, of any model of this width and depth; `content_hash` is "".
  std::optional<HeadTarget> target = std::nullopt;
  int draft_vocabulary = 0;  // rows of a head's reduced vocabulary; 0: it drafts every token

  // The token of each row of the reduced vocabulary, rising: spread evenly, since without training
  // no token is more frequent than another. Empty where there is none.
  std::vector<int32_t> draft_tokens() const;

  // sha256 of the shape and the seed: the model's content, as a packed file's hash is of its.
  std::string content_hash() const;
};

// Reads `{name, seed, ...}` with the shape's keys of docs/packed-format.md, all needed, and for a
// head `architecture`, `target` and perhaps `draft_vocab_size`; `path` stands in messages. Throws
// Error of type `bad_request` that names the key.
SyntheticModel synthetic_model_of(const nlohmann::json& value, const std::string& path);

}  // namespace specquant::core
