#include "core/synthetic_model.h"

#include <stdexcept>

#include "core/fields.h"
#include "core/names.h"
#include "core/sha256.h"

namespace specquant::core {
namespace {

constexpr const char* kShapeKeys[] = {
    "hidden_size", "intermediate_size", "num_layers",   "num_heads",  "num_kv_heads", "head_dim",
    "vocab_size",  "max_position",      "rms_norm_eps", "rope_theta", "tied_head"};

// Throws std::invalid_argument with the end of a sentence.
void read_head(Fields& fields, SyntheticModel& model) {
  Fields target = fields.object("target");
  for (const char* key : {"hidden_size", "num_layers", "taps"}) target.value(key);
  target.finish();
  PackedMetadata head;
  head.architecture = Architecture::eagle3;
  head.target = model.target = head_target_of(fields.value("target"));
  model.shape.feature_width = static_cast<int>(model.target->taps.size()) * model.target->hidden;
  head.shape = model.shape;
  check_draft_head(head);
  if (!fields.has("draft_vocab_size")) return;
  model.draft_vocabulary = fields.integer("draft_vocab_size", 1, model.shape.vocabulary);
}

}  // namespace

std::vector<int32_t> SyntheticModel::draft_tokens() const {
  std::vector<int32_t> tokens;
  for (int64_t row = 0; row < draft_vocabulary; ++row) {
    tokens.push_back(static_cast<int32_t>(row * shape.vocabulary / draft_vocabulary));
  }
  return tokens;
}

std::string SyntheticModel::content_hash() const {
  nlohmann::json content = {shape.hidden,       shape.intermediate, shape.layers,
                            shape.heads,        shape.kv_heads,     shape.head_dim,
                            shape.vocabulary,   shape.max_position, shape.rope_theta,
                            shape.norm_epsilon, shape.tied_head,    seed};
  if (target) {
    content.push_back({target->hidden, target->layers, target->taps, draft_vocabulary});
  }
  const std::string text = content.dump();
  return sha256_hex(std::as_bytes(std::span(text)));
}

SyntheticModel synthetic_model_of(const nlohmann::json& value, const std::string& path) {
  Fields fields(value, path);
  SyntheticModel model;
  model.name = fields.text("name");
  model.seed = fields.seed("seed");
  for (const char* key : kShapeKeys) fields.value(key);
  const bool head = fields.has("architecture");
  if (head && fields.text("architecture") != "eagle3") {
    bad_request("'" + fields.path_of("architecture") + "' is " +
                core::quoted(fields.text("architecture")) +
                "; synthetic draft heads are 'eagle3'. Leave it out for a model.");
  }
  try {
    model.shape = shape_of(value);
    if (head) read_head(fields, model);
  } catch (const std::invalid_argument& error) {
    bad_request("'" + path + "': " + error.what() + ".");
  }
  fields.finish();
  return model;
}

}  // namespace specquant::core
