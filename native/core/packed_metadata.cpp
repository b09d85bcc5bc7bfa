#include "core/packed_metadata.h"

#include <limits>
#include <stdexcept>

#include "core/hadamard.h"

namespace specquant::core {
namespace {

using nlohmann::json;

constexpr int kMaxLayers = 4096;
constexpr std::size_t kMaxTaps = 16;

int checked_integer(const json& value, const std::string& key, int low, int high) {
  if (!value.is_number_integer()) throw std::invalid_argument("'" + key + "' is not an integer");
  const bool huge = value.is_number_unsigned() &&
                    value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  const int64_t number = huge ? std::numeric_limits<int64_t>::max() : value.get<int64_t>();
  if (number < low || number > high) {
    throw std::invalid_argument("'" + key + "' is outside " + std::to_string(low) + " to " +
                                std::to_string(high));
  }
  return static_cast<int>(number);
}

bool flag_field(const json& object, const std::string& key) {
  const json& value = field(object, key);
  if (!value.is_boolean()) throw std::invalid_argument("'" + key + "' is not true or false");
  return value.get<bool>();
}

double positive_field(const json& object, const std::string& key) {
  const json& value = field(object, key);
  if (!value.is_number()) throw std::invalid_argument("'" + key + "' is not a number");
  const auto number = value.get<double>();
  if (!(number > 0.0) || number > 1e30) {
    throw std::invalid_argument("'" + key + "' is not a positive number");
  }
  return number;
}

Architecture architecture_of(const json& metadata) {
  const std::string name = text_field(metadata, "architecture");
  if (name == "llama") return Architecture::llama;
  if (name == "eagle2") return Architecture::eagle2;
  if (name == "eagle3") return Architecture::eagle3;
  throw std::invalid_argument("its architecture is '" + name +
                              "'; 'llama', 'eagle2' and 'eagle3' can be read");
}

RopeScaling rope_scaling_of(const json& metadata) {
  RopeScaling scaling;
  const auto found = metadata.find("rope_scaling");
  if (found == metadata.end() || found->is_null()) return scaling;
  if (!found->is_object()) throw std::invalid_argument("'rope_scaling' is not an object");
  const std::string type = text_field(*found, "type");
  scaling.factor = positive_field(*found, "factor");
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    return scaling;
  }
  if (type != "llama3") {
    throw std::invalid_argument("'rope_scaling' has the type '" + type +
                                "'; 'linear' and 'llama3' can be read");
  }
  scaling.kind = RopeScaling::Kind::llama3;
  scaling.low_freq_factor = positive_field(*found, "low_freq_factor");
  scaling.high_freq_factor = positive_field(*found, "high_freq_factor");
  scaling.original_max_position =
      integer_field(*found, "original_max_position", 1, kMaxPackedDimension);
  if (!(scaling.high_freq_factor > scaling.low_freq_factor)) {
    throw std::invalid_argument("'high_freq_factor' is not above 'low_freq_factor'");
  }
  return scaling;
}

HeadTarget target_of(const json& metadata) {
  const json& entry = field(metadata, "target");
  HeadTarget target = head_target_of(entry);
  target.content_hash = text_field(entry, "content_hash");
  return target;
}

void require_hadamard(const char* part, int width) {
  if (hadamard_of(width)) return;
  throw std::invalid_argument("'hadamard' lists '" + std::string(part) +
                              "', but there is no Hadamard transform of its " +
                              std::to_string(width) + " inputs");
}

void read_hadamard(const json& metadata, PackedMetadata& out) {
  const auto found = metadata.find("hadamard");
  if (found == metadata.end()) return;
  if (!found->is_array()) throw std::invalid_argument("'hadamard' is not a list");
  for (const json& part : *found) {
    if (part == "down") {
      out.hadamard_down = true;
    } else if (part == "o") {
      out.hadamard_o = true;
    } else {
      throw std::invalid_argument("'hadamard' may list 'down' and 'o', not " + part.dump());
    }
  }
  if (out.hadamard_down) require_hadamard("down", out.shape.intermediate);
  if (out.hadamard_o) require_hadamard("o", out.shape.heads * out.shape.head_dim);
}

int reduced_rows(const json& described) {
  try {
    return described_tensor("draft_tokens", described).rows;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string("tensor 'draft_tokens': ") + error.what());
  }
}

}  // namespace

const json& field(const json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end()) throw std::invalid_argument("'" + key + "' is missing");
  return *found;
}

int integer_field(const json& object, const std::string& key, int low, int high) {
  return checked_integer(field(object, key), key, low, high);
}

std::string text_field(const json& object, const std::string& key) {
  const json& value = field(object, key);
  if (!value.is_string()) throw std::invalid_argument("'" + key + "' is not a text");
  return value.get<std::string>();
}

ModelShape shape_of(const json& metadata) {
  ModelShape shape;
  shape.hidden = integer_field(metadata, "hidden_size", 1, kMaxPackedDimension);
  shape.intermediate = integer_field(metadata, "intermediate_size", 1, kMaxPackedDimension);
  shape.layers = integer_field(metadata, "num_layers", 1, kMaxLayers);
  shape.heads = integer_field(metadata, "num_heads", 1, 1 << 12);
  shape.kv_heads = integer_field(metadata, "num_kv_heads", 1, 1 << 12);
  shape.head_dim = integer_field(metadata, "head_dim", 1, 1 << 10);
  shape.vocabulary = integer_field(metadata, "vocab_size", 1, kMaxPackedDimension);
  shape.max_position = integer_field(metadata, "max_position", 1, kMaxPackedDimension);
  shape.rope_theta = static_cast<float>(positive_field(metadata, "rope_theta"));
  shape.norm_epsilon = static_cast<float>(positive_field(metadata, "rms_norm_eps"));
  shape.tied_head = flag_field(metadata, "tied_head");
  if (shape.heads % shape.kv_heads != 0) {
    throw std::invalid_argument("'num_heads' is not a multiple of 'num_kv_heads'");
  }
  if (shape.head_dim % 2 != 0) throw std::invalid_argument("'head_dim' is odd");
  if (shape.intermediate % kPackedTileRows != 0) {
    throw std::invalid_argument("'intermediate_size' is not a multiple of 16");
  }
  return shape;
}

HeadTarget head_target_of(const json& entry) {
  if (!entry.is_object()) throw std::invalid_argument("'target' is not an object");
  HeadTarget target;
  target.hidden = integer_field(entry, "hidden_size", 1, kMaxPackedDimension);
  target.layers = integer_field(entry, "num_layers", 1, kMaxLayers);
  const json& taps = field(entry, "taps");
  if (!taps.is_array() || taps.empty() || taps.size() > kMaxTaps) {
    throw std::invalid_argument("'taps' is not a list of 1 to " + std::to_string(kMaxTaps) +
                                " hidden states");
  }
  for (const json& tap : taps) {
    target.taps.push_back(checked_integer(tap, "taps", 0, target.layers + 1));
  }
  return target;
}

void check_draft_head(const PackedMetadata& head) {
  const ModelShape& shape = head.shape;
  if (shape.tied_head) throw std::invalid_argument("'tied_head' is true for a draft head");
  if (head.architecture == Architecture::eagle2 && shape.feature_width != shape.hidden) {
    throw std::invalid_argument(
        "an eagle2 head takes one tap of a target as wide as itself, not features of width " +
        std::to_string(shape.feature_width) + " beside 'hidden_size' " +
        std::to_string(shape.hidden));
  }
  // The widths tell the target's features from the head's own.
  if (head.architecture == Architecture::eagle3 && shape.feature_width == shape.hidden) {
    throw std::invalid_argument("the target's features are as wide as the eagle3 head's own");
  }
}

PackedMetadata metadata_of(const json& metadata) {
  if (integer_field(metadata, "format_version", 0, kMaxPackedDimension) != 1) {
    throw std::invalid_argument("its format_version is not 1; pack the checkpoint again");
  }
  PackedMetadata out;
  out.architecture = architecture_of(metadata);
  out.shape = shape_of(metadata);
  out.name = text_field(metadata, "name");
  out.content_hash = text_field(metadata, "content_hash");
  out.weight_format = text_field(metadata, "weight_format");
  out.rope_scaling = rope_scaling_of(metadata);
  read_hadamard(metadata, out);
  if (is_draft_head(out.architecture)) {
    out.target = target_of(metadata);
    out.shape.feature_width = static_cast<int>(out.target->taps.size()) * out.target->hidden;
    check_draft_head(out);
    out.norm_before_residual =
        metadata.contains("norm_before_residual") && flag_field(metadata, "norm_before_residual");
    if (out.norm_before_residual && out.architecture != Architecture::eagle3) {
      throw std::invalid_argument("'norm_before_residual' is true for a head that is not eagle3");
    }
  }
  return out;
}

std::vector<ExpectedTensor> expected_tensors(const PackedMetadata& metadata,
                                             const json& described) {
  const ModelShape& shape = metadata.shape;
  const bool eagle2 = metadata.architecture == Architecture::eagle2;
  const bool eagle3 = metadata.architecture == Architecture::eagle3;
  const bool drafts = eagle2 || eagle3;
  const int64_t hidden = shape.hidden;
  const int64_t query = int64_t{shape.heads} * shape.head_dim;
  const int64_t qkv = query + 2 * int64_t{shape.kv_heads} * shape.head_dim;
  std::vector<ExpectedTensor> all;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols,
                          bool optional = false) {
    all.push_back({name, rows, cols, std::nullopt, optional});
  };
  const auto vector = [&](const std::string& name, int64_t rows, bool optional = false) {
    all.push_back({name, rows, 1, TensorKind::f32, optional});
  };

  int64_t head_rows = shape.vocabulary;
  if (described.contains("draft_tokens")) {
    if (shape.tied_head) {
      throw std::invalid_argument("'tied_head' is true beside tensor 'draft_tokens'");
    }
    head_rows = reduced_rows(described["draft_tokens"]);
    all.push_back({"draft_tokens", head_rows, 1, TensorKind::i32});
  }
  matrix("head", head_rows, hidden, drafts);
  if (!shape.tied_head) matrix("embed", shape.vocabulary, hidden, drafts);
  vector("final_norm", hidden, eagle2);
  if (eagle2) {
    matrix("fc", hidden, 2 * hidden);
    vector("fc_bias", hidden, true);
  } else if (eagle3) {
    matrix("feature_fc", hidden, shape.feature_width);
    vector("embed_norm", hidden);
  }
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const bool first = layer == 0;
    matrix(prefix + "qkv", qkv, eagle3 && first ? 2 * hidden : hidden);
    matrix(prefix + "o", hidden, query);
    matrix(prefix + "gate_up", 2 * int64_t{shape.intermediate}, hidden);
    matrix(prefix + "down", hidden, shape.intermediate);
    vector(prefix + "attn_norm", hidden, eagle2 && first);
    vector(prefix + "mlp_norm", hidden);
    const auto columns = [&](const char* part, int64_t count) {
      if (!drafts) all.push_back({prefix + part + "_columns", count, 1, TensorKind::i32, true});
    };
    columns("qkv", hidden);
    columns("o", query);
    columns("gate_up", hidden);
    columns("down", shape.intermediate);
    if (described.contains("layers.0.qkv_bias")) vector(prefix + "qkv_bias", qkv);
    if (described.contains("layers.0.q_norm")) {
      vector(prefix + "q_norm", shape.head_dim);
      vector(prefix + "k_norm", shape.head_dim);
    }
  }
  return all;
}

}  // namespace specquant::core
