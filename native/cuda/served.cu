#include "cuda/served.h"

#include "core/errors.h"
#include "cuda/step.h"

namespace specquant::cuda {

using core::Error;
using core::ErrorType;

void check_served(const std::string& name, const ModelShape& shape, int blocks) {
  if (shape.head_dim != 64 && shape.head_dim != 128) {
    throw Error(ErrorType::model, "Model " + name + ": tensor 'layers.0.qkv' has heads of " +
                                      std::to_string(shape.head_dim) +
                                      " dimensions; the CUDA engine has kernels for 64 and 128.");
  }
  if (shape.heads / shape.kv_heads > kQueries) {
    throw Error(ErrorType::model,
                "Model " + name +
                    " has more than 8 query heads for a key-value head, which the CUDA "
                    "engine has no kernel for.");
  }
  if (shape.hidden > kResidualTiles * kTileRows * blocks) {
    throw Error(ErrorType::model,
                "Model " + name + " has a hidden size of " + std::to_string(shape.hidden) +
                    "; the CUDA engine serves up to " +
                    std::to_string(kResidualTiles * kTileRows * blocks) + " on this GPU.");
  }
  if (shape.intermediate % 16 != 0) {
    throw Error(ErrorType::model, "Model " + name +
                                      ": the CUDA engine needs an intermediate size that "
                                      "is a multiple of 16.");
  }
}

void check_served(const core::PackedFile& file, int blocks) {
  const core::PackedMetadata& metadata = file.metadata();
  const auto refuse = [&](const char* what) {
    throw Error(ErrorType::model,
                "Model " + file.name() + " has " + what +
                    ", which the CUDA engine has no kernel for. Use --device cpu.");
  };
  if (core::is_draft_head(metadata.architecture)) refuse("the layers of a draft head");
  if (metadata.hadamard_down || metadata.hadamard_o) refuse("an online Hadamard transform");
  if (file.find_in_layer(0, "qkv_bias") != nullptr) refuse("a bias of q, k and v");
  if (file.find_in_layer(0, "q_norm") != nullptr) refuse("norms of q and k");
  if (!file.draft_tokens().empty()) refuse("a reduced vocabulary");
  check_served(file.name(), file.shape(), blocks);
}

}  // namespace specquant::cuda
