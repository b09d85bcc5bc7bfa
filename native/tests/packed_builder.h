// Small random models in the packed format, built in memory, beside their weights in float64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/packed_file.h"
#include "tests/reference_tiles.h"

namespace specquant::cpu::reference {

class RandomModel;

struct RandomModelSpec {
  ModelShape shape;
  WeightKind layer_kind = WeightKind::affine4;
  WeightKind head_kind = WeightKind::affine8;
  std::map<std::string, WeightKind> other_kinds = {};  // of single matrices of the layers
  int group = 32;
  unsigned seed = 1;
  core::Architecture architecture = core::Architecture::llama;
  std::vector<int32_t> draft_tokens = {};  // rising; with them the head has so many rows
  bool qkv_bias = false, head_norms = false, columns = false;
  nlohmann::json more_metadata = nlohmann::json::object();
  // Draft heads. `taps` of the target are the features.
  const RandomModel* target = nullptr;
  std::vector<int> taps = {};
  bool own_embedding = true, own_head = true;
  bool fc_bias = false, first_norm = true, final_norm = true;  // eagle2's choices
};

// GQA 3:1, a vocabulary that is no multiple of 16, a tied 8-bit head: a small sister of the demo
// model.
inline RandomModelSpec small_spec() {
  RandomModelSpec spec;
  spec.shape = {64, 96, 2, 6, 2, 16, 300, 512, 10000.0F, 1e-5F, true};
  return spec;
}

// A small sister of Qwen2: biases, seven query heads a key-value head, a width that is not that of
// the heads.
inline RandomModelSpec biased_spec() {
  RandomModelSpec spec = small_spec();
  spec.shape.heads = 14;
  spec.shape.hidden = 96;
  spec.qkv_bias = true;
  spec.seed = 11;
  return spec;
}

// Of Qwen3: norms of each head of q and k, heads wider than the model; and Llama 3.1's positions.
inline RandomModelSpec normed_heads_spec() {
  RandomModelSpec spec = small_spec();
  spec.shape.head_dim = 80;
  spec.head_norms = true;
  spec.more_metadata["rope_scaling"] = {{"type", "llama3"},
                                        {"factor", 8.0},
                                        {"low_freq_factor", 1.0},
                                        {"high_freq_factor", 4.0},
                                        {"original_max_position", 64}};
  spec.seed = 12;
  return spec;
}

// Rotated: Hadamard transforms of both kinds, and positions stretched evenly.
inline RandomModelSpec transformed_spec() {
  RandomModelSpec spec = small_spec();
  spec.more_metadata["hadamard"] = {"down", "o"};
  spec.more_metadata["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  spec.seed = 13;
  return spec;
}

class RandomModel {
 public:
  explicit RandomModel(const RandomModelSpec& spec);

  const ModelShape& shape() const { return file_->shape(); }
  const RandomModelSpec& spec() const { return spec_; }
  const core::PackedFile& file() const { return *file_; }
  bool has(const std::string& name) const {
    return matrices_.contains(name) || vectors_.contains(name);
  }
  const Weights& matrix(const std::string& name) const { return matrices_.at(name); }
  const Weights& layer_matrix(int layer, const std::string& part) const {
    return matrices_.at("layers." + std::to_string(layer) + "." + part);
  }
  const std::vector<float>& vector(const std::string& name) const { return vectors_.at(name); }
  // Which element of its input each column of a matrix takes; null: its own.
  const std::vector<int32_t>* columns(const std::string& matrix) const {
    const auto found = columns_.find(matrix);
    return found == columns_.end() ? nullptr : &found->second;
  }
  // The bytes of the file, for tests that spoil them.
  std::span<const std::byte> bytes() const { return {storage_.data() + start_, size_}; }

 private:
  void draw();
  void write();

  RandomModelSpec spec_;
  std::map<std::string, Weights> matrices_;
  std::map<std::string, std::vector<float>> vectors_;
  std::map<std::string, std::vector<int32_t>> columns_;
  std::vector<std::byte> storage_;  // the file, from an address that is a multiple of 64
  std::size_t start_ = 0, size_ = 0;
  std::unique_ptr<core::PackedFile> file_;
};

inline RandomModel::RandomModel(const RandomModelSpec& spec) : spec_(spec) {
  draw();
  write();
  file_ = std::make_unique<core::PackedFile>(bytes(), "random model");
}

inline void RandomModel::draw() {
  using core::Architecture;
  std::mt19937 random(spec_.seed);
  const ModelShape& s = spec_.shape;
  const auto matrix = [&](const std::string& name, WeightKind kind, int rows, int cols) {
    const auto other = spec_.other_kinds.find(name);
    if (other != spec_.other_kinds.end()) kind = other->second;
    const bool groups = is_affine(kind);
    matrices_.emplace(name, random_weights(kind, rows, cols, groups ? spec_.group : 0, random));
  };
  const auto vector = [&](const std::string& name, int count, float low, float high) {
    std::uniform_real_distribution<float> between(low, high);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = between(random);
    vectors_.emplace(name, values);
  };
  // Norms before attention are small, so that scores are a few units, as in trained models: with
  // random weights they would else be so far apart that rounding errors decide who wins.
  const auto norm = [&](const std::string& name, int count, float size) {
    vector(name, count, 0.5F * size, 1.5F * size);
  };
  const bool eagle2 = spec_.architecture == Architecture::eagle2;
  const bool eagle3 = spec_.architecture == Architecture::eagle3;
  const auto reduced = static_cast<int>(spec_.draft_tokens.size());
  if (spec_.own_head) {
    matrix("head", spec_.head_kind, reduced > 0 ? reduced : s.vocabulary, s.hidden);
  }
  if (!s.tied_head && spec_.own_embedding) {
    matrix("embed", spec_.head_kind, s.vocabulary, s.hidden);
  }
  if (spec_.final_norm) norm("final_norm", s.hidden, 1.0F);
  for (int layer = 0; layer < s.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const int qkv = (s.heads + 2 * s.kv_heads) * s.head_dim;
    matrix(prefix + "qkv", spec_.layer_kind, qkv, eagle3 && layer == 0 ? 2 * s.hidden : s.hidden);
    matrix(prefix + "o", spec_.layer_kind, s.hidden, s.heads * s.head_dim);
    matrix(prefix + "gate_up", spec_.layer_kind, 2 * s.intermediate, s.hidden);
    matrix(prefix + "down", spec_.layer_kind, s.hidden, s.intermediate);
    if (layer > 0 || spec_.first_norm) norm(prefix + "attn_norm", s.hidden, 0.3F);
    norm(prefix + "mlp_norm", s.hidden, 1.0F);
    for (const char* part : {"qkv", "o", "gate_up", "down"}) {
      if (!spec_.columns) break;
      std::vector<int32_t> order(static_cast<std::size_t>(matrices_.at(prefix + part).matrix.cols));
      std::iota(order.begin(), order.end(), 0);
      std::ranges::shuffle(order, random);
      columns_.emplace(prefix + part, order);
    }
    if (spec_.qkv_bias) vector(prefix + "qkv_bias", qkv, -0.5F, 0.5F);
    if (!spec_.head_norms) continue;
    norm(prefix + "q_norm", s.head_dim, 1.0F);
    norm(prefix + "k_norm", s.head_dim, 1.0F);
  }
  if (eagle2) {
    matrix("fc", spec_.layer_kind, s.hidden, 2 * s.hidden);
    if (spec_.fc_bias) vector("fc_bias", s.hidden, -0.5F, 0.5F);
  } else if (eagle3) {
    const auto taps = static_cast<int>(spec_.taps.size());
    matrix("feature_fc", spec_.layer_kind, s.hidden, taps * spec_.target->shape().hidden);
    norm("embed_norm", s.hidden, 0.3F);
  }
}

inline const char* kind_name(WeightKind kind) {
  switch (kind) {
    case WeightKind::affine4:
      return "affine4";
    case WeightKind::affine4z:
      return "affine4z";
    case WeightKind::affine8:
      return "affine8";
    case WeightKind::f16:
      return "f16";
    case WeightKind::bf16:
      return "bf16";
  }
  return "";
}

// safetensors: length of the header, the header padded with spaces, the tensors.
inline void RandomModel::write() {
  using nlohmann::json;
  const ModelShape& s = spec_.shape;
  json header = json::object();
  json descriptions = json::object();
  std::vector<std::byte> data;
  const auto add = [&](const std::string& name, const void* bytes, std::size_t size,
                       const char* dtype, std::size_t elements) {
    data.resize((data.size() + 63) / 64 * 64);
    const std::size_t begin = data.size();
    data.resize(begin + size);
    std::memcpy(data.data() + begin, bytes, size);
    header[name] = {
        {"dtype", dtype}, {"shape", {elements}}, {"data_offsets", {begin, begin + size}}};
  };
  for (const auto& [name, weights] : matrices_) {
    add(name, weights.bytes.data(), weights.bytes.size(), "U8", weights.bytes.size());
    descriptions[name] = {{"kind", kind_name(weights.matrix.kind)},
                          {"rows", weights.matrix.rows},
                          {"cols", weights.matrix.cols},
                          {"group", weights.matrix.group}};
  }
  for (const auto& [name, weights] : vectors_) {
    add(name, weights.data(), weights.size() * sizeof(float), "F32", weights.size());
    descriptions[name] = {{"kind", "f32"}, {"rows", weights.size()}, {"cols", 1}, {"group", 0}};
  }
  for (const auto& [name, order] : columns_) {
    add(name + "_columns", order.data(), order.size() * sizeof(int32_t), "I32", order.size());
    descriptions[name + "_columns"] = {
        {"kind", "i32"}, {"rows", order.size()}, {"cols", 1}, {"group", 0}};
  }
  if (!spec_.draft_tokens.empty()) {
    const auto& tokens = spec_.draft_tokens;
    add("draft_tokens", tokens.data(), tokens.size() * sizeof(int32_t), "I32", tokens.size());
    descriptions["draft_tokens"] = {
        {"kind", "i32"}, {"rows", tokens.size()}, {"cols", 1}, {"group", 0}};
  }
  constexpr const char* kArchitectures[] = {"llama", "eagle2", "eagle3"};
  json metadata = {{"format_version", 1},
                   {"architecture", kArchitectures[static_cast<int>(spec_.architecture)]},
                   {"name", "random"},
                   {"hidden_size", s.hidden},
                   {"intermediate_size", s.intermediate},
                   {"num_layers", s.layers},
                   {"num_heads", s.heads},
                   {"num_kv_heads", s.kv_heads},
                   {"head_dim", s.head_dim},
                   {"vocab_size", s.vocabulary},
                   {"max_position", s.max_position},
                   {"rope_theta", s.rope_theta},
                   {"rms_norm_eps", s.norm_epsilon},
                   {"tied_head", s.tied_head},
                   {"tensors", descriptions},
                   {"weight_format", "random"},
                   {"content_hash", "random " + std::to_string(spec_.seed)}};
  if (spec_.target != nullptr) {
    const core::PackedFile& target = spec_.target->file();
    metadata["target"] = {{"content_hash", target.content_hash()},
                          {"hidden_size", target.shape().hidden},
                          {"num_layers", target.shape().layers},
                          {"taps", spec_.taps}};
  }
  metadata.update(spec_.more_metadata);
  header["__metadata__"] = {{"specquant", metadata.dump()}};
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  const uint64_t length = text.size();
  size_ = sizeof length + text.size() + data.size();
  storage_.resize(size_ + 64);
  start_ = (64 - reinterpret_cast<std::uintptr_t>(storage_.data()) % 64) % 64;
  std::byte* out = storage_.data() + start_;
  std::memcpy(out, &length, sizeof length);
  std::memcpy(out + sizeof length, text.data(), text.size());
  std::memcpy(out + sizeof length + text.size(), data.data(), data.size());
}

}  // namespace specquant::cpu::reference
