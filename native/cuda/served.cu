#include "cuda/served.h"

#include "core/errors.h"
#include "core/plain_layers.h"
#include "cuda/step.h"

namespace specquant::cuda {

using core::Error;
using core::ErrorType;

namespace {

void check_shape(const std::string& name, const ModelShape& shape, int blocks) {
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

}  // namespace

void check_served(const ModelOrigin& origin, int blocks) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorType::model, "Model " + origin.name() + what);
  };
  if (origin.file != nullptr) {
    core::require_plain_layers(*origin.file, "CUDA engine");
  }
  if (origin.architecture() == core::Architecture::eagle3 && origin.shape().layers > 1) {
    refuse(" is an eagle3 head of " + std::to_string(origin.shape().layers) +
           " layers; the CUDA engine has kernels for those of one. Use --device cpu.");
  }
  check_shape(origin.name(), origin.shape(), blocks);
}

}  // namespace specquant::cuda
