#include "core/synthetic_model.h"

#include <stdexcept>

#include "core/fields.h"
#include "core/packed_metadata.h"
#include "core/sha256.h"

namespace specquant::core {
namespace {

constexpr const char* kShapeKeys[] = {
    "hidden_size", "intermediate_size", "num_layers",   "num_heads",  "num_kv_heads", "head_dim",
    "vocab_size",  "max_position",      "rms_norm_eps", "rope_theta", "tied_head"};

}  // namespace

std::string SyntheticModel::content_hash() const {
  const nlohmann::json content = {shape.hidden,       shape.intermediate, shape.layers,
                                  shape.heads,        shape.kv_heads,     shape.head_dim,
                                  shape.vocabulary,   shape.max_position, shape.rope_theta,
                                  shape.norm_epsilon, shape.tied_head,    seed};
  const std::string text = content.dump();
  return sha256_hex(std::as_bytes(std::span(text)));
}

SyntheticModel synthetic_model_of(const nlohmann::json& value, const std::string& path) {
  Fields fields(value, path);
  SyntheticModel model;
  model.name = fields.text("name");
  model.seed = fields.seed("seed");
  for (const char* key : kShapeKeys) fields.value(key);
  fields.finish();
  try {
    model.shape = shape_of(value);
  } catch (const std::invalid_argument& error) {
    bad_request("'" + path + "': " + error.what() + ".");
  }
  return model;
}

}  // namespace specquant::core
