// Where a model comes from: a packed file, beside its target's where it is a draft head, or a seed.
#pragma once

#include <string>
#include <vector>

#include "core/packed_file.h"
#include "core/synthetic_model.h"
#include "decode/device.h"

namespace specquant::cuda {

// The files must outlive everything that is made from them.
struct ModelOrigin {
  const core::PackedFile* file = nullptr;    // null: weights are drawn from the seed
  const core::PackedFile* target = nullptr;  // of a draft head with a file
  core::SyntheticModel synthetic = {};

  const std::string& name() const { return file != nullptr ? file->name() : synthetic.name; }
  const ModelShape& shape() const { return file != nullptr ? file->shape() : synthetic.shape; }
  core::Architecture architecture() const {
    if (file != nullptr) return file->metadata().architecture;
    return synthetic.target ? core::Architecture::eagle3 : core::Architecture::llama;
  }
  bool norm_before_residual() const {
    return file != nullptr && file->metadata().norm_before_residual;
  }
  core::RopeScaling rope_scaling() const {
    return file != nullptr ? file->metadata().rope_scaling : core::RopeScaling{};
  }
  // The token of each row of the head, rising; empty where row i is token i.
  std::vector<int32_t> draft_tokens() const {
    if (file == nullptr) return synthetic.draft_tokens();
    const auto tokens = file->draft_tokens();
    return {tokens.begin(), tokens.end()};
  }
  // Whether an optional tensor is there. Drawn models have all but fc_bias.
  bool has(const std::string& tensor) const {
    return file != nullptr ? file->find(tensor) != nullptr : tensor != "fc_bias";
  }
  // The tensor that serves as `name`: the file's own or, for a draft head's embedding and head, its
  // target's. Null where weights are drawn.
  const core::TensorView* tensor(const std::string& name) const {
    if (file == nullptr) return nullptr;
    if (target != nullptr && !has(name)) {
      if (name == "embed") return &target->embedding();
      if (name == "head") return &target->head();
    }
    return &file->tensor(name);
  }
};

}  // namespace specquant::cuda
