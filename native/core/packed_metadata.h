// The metadata of a packed file: its fields, what they say of the model, and the tensors that
// follow from it. Every function throws std::invalid_argument with the end of a sentence about what
// is wrong.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/packed_tensor.h"
#include "core/rotary.h"
#include "decode/device.h"

namespace specquant::core {

constexpr int kPackedTileRows = 16;
constexpr int kMaxPackedDimension = 1 << 24;  // keeps every product of sizes below 2^63

const nlohmann::json& field(const nlohmann::json& object, const std::string& key);
int integer_field(const nlohmann::json& object, const std::string& key, int low, int high);
std::string text_field(const nlohmann::json& object, const std::string& key);

// `llama` also serves Mistral, Qwen2 and Qwen3, whose tensors are optional; the others are draft
// heads.
enum class Architecture { llama, eagle2, eagle3 };
inline bool is_draft_head(Architecture architecture) { return architecture != Architecture::llama; }

// The model that a draft head was trained for, and the hidden states of it that the head reads, as
// Want::taps counts them.
struct HeadTarget {
  std::string content_hash;
  int hidden = 0, layers = 0;
  std::vector<int> taps;
};

struct PackedMetadata {
  Architecture architecture = Architecture::llama;
  std::string name, content_hash, weight_format;
  ModelShape shape;
  RopeScaling rope_scaling;
  bool hadamard_down = false, hadamard_o = false;  // online transforms before these matrices
  std::optional<HeadTarget> target;                // of a draft head
  bool norm_before_residual = false;               // eagle3: the stream is norm(feature)
};

// The keys of the shape alone; `feature_width` stays 0.
ModelShape shape_of(const nlohmann::json& metadata);
// Width, depth and taps of a head's target, without its `content_hash`.
HeadTarget head_target_of(const nlohmann::json& entry);
// Whether a draft head's shape and target go together.
void check_draft_head(const PackedMetadata& head);
PackedMetadata metadata_of(const nlohmann::json& metadata);

// A tensor that a model has or may have.
struct ExpectedTensor {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  std::optional<TensorKind> vector;  // f32 or i32; without it the tensor is a matrix
  bool optional = false;
};

// `described` is the table of tensors in the metadata: some tensors follow from others being there,
// and what the first layer has of optional ones, all have.
std::vector<ExpectedTensor> expected_tensors(const PackedMetadata& metadata,
                                             const nlohmann::json& described);

}  // namespace specquant::core
