#include "core/plain_layers.h"

#include "core/errors.h"

namespace specquant::core {
namespace {

// The first part that is not plain, "" where there is none.
std::string beyond_plain_layers(const PackedFile& file) {
  const PackedMetadata& metadata = file.metadata();
  if (metadata.hadamard_down || metadata.hadamard_o) return "it has 'hadamard'";
  for (int layer = 0; layer < file.shape().layers; ++layer) {
    for (const char* part : {"qkv_bias", "q_norm", "k_norm", "qkv_columns", "o_columns",
                             "gate_up_columns", "down_columns"}) {
      const TensorView* tensor = file.find_in_layer(layer, part);
      if (tensor != nullptr) return "it has tensor '" + tensor->name + "'";
    }
  }
  return "";
}

}  // namespace

void require_plain_layers(const PackedFile& file, const std::string& engine) {
  const std::string part = beyond_plain_layers(file);
  if (part.empty()) return;
  throw Error(ErrorType::unsupported, "Model file " + file.path() + ": " + part + ", which the " +
                                          engine + " cannot serve. Use the CPU engine.");
}

}  // namespace specquant::core
