#include "core/packed_metadata.h"

#include <limits>
#include <stdexcept>

namespace specquant::core {
namespace {

using nlohmann::json;

constexpr int kMaxLayers = 4096;

float positive_field(const json& object, const std::string& key) {
  const json& value = field(object, key);
  if (!value.is_number()) throw std::invalid_argument("'" + key + "' is not a number");
  const auto number = value.get<double>();
  if (!(number > 0.0) || number > 1e30) {
    throw std::invalid_argument("'" + key + "' is not a positive number");
  }
  return static_cast<float>(number);
}

}  // namespace

const json& field(const json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end()) throw std::invalid_argument("'" + key + "' is missing");
  return *found;
}

int integer_field(const json& object, const std::string& key, int low, int high) {
  const json& value = field(object, key);
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
  shape.rope_theta = positive_field(metadata, "rope_theta");
  shape.norm_epsilon = positive_field(metadata, "rms_norm_eps");
  const json& tied = field(metadata, "tied_head");
  if (!tied.is_boolean()) throw std::invalid_argument("'tied_head' is not true or false");
  shape.tied_head = tied.get<bool>();
  if (shape.heads % shape.kv_heads != 0) {
    throw std::invalid_argument("'num_heads' is not a multiple of 'num_kv_heads'");
  }
  if (shape.head_dim % 2 != 0) throw std::invalid_argument("'head_dim' is odd");
  if (shape.intermediate % kPackedTileRows != 0) {
    throw std::invalid_argument("'intermediate_size' is not a multiple of 16");
  }
  return shape;
}

std::vector<ExpectedTensor> expected_tensors(const ModelShape& shape) {
  std::vector<ExpectedTensor> all;
  const int64_t hidden = shape.hidden;
  const int64_t query = int64_t{shape.heads} * shape.head_dim;
  const int64_t key_value = int64_t{shape.kv_heads} * shape.head_dim;
  all.push_back({"head", shape.vocabulary, hidden});
  if (!shape.tied_head) all.push_back({"embed", shape.vocabulary, hidden});
  all.push_back({"final_norm", hidden, 1, true});
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    all.push_back({prefix + "qkv", query + 2 * key_value, hidden});
    all.push_back({prefix + "o", hidden, query});
    all.push_back({prefix + "gate_up", 2 * int64_t{shape.intermediate}, hidden});
    all.push_back({prefix + "down", hidden, shape.intermediate});
    all.push_back({prefix + "attn_norm", hidden, 1, true});
    all.push_back({prefix + "mlp_norm", hidden, 1, true});
  }
  return all;
}

}  // namespace specquant::core
