// Small random models in the packed format, built in memory, beside their weights in float64.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/packed_file.h"
#include "tests/reference_tiles.h"

namespace specquant::cpu::reference {

struct RandomModelSpec {
  ModelShape shape;
  WeightKind layer_kind = WeightKind::affine4;
  WeightKind head_kind = WeightKind::affine8;
  int group = 32;
  unsigned seed = 1;
};

// GQA 3:1, a vocabulary that is no multiple of 16, a tied 8-bit head: a small sister of the demo
// model.
inline RandomModelSpec small_spec() {
  RandomModelSpec spec;
  spec.shape = {64, 96, 2, 6, 2, 16, 300, 512, 10000.0F, 1e-5F, true};
  return spec;
}

class RandomModel {
 public:
  explicit RandomModel(const RandomModelSpec& spec);

  const ModelShape& shape() const { return shape_; }
  const core::PackedFile& file() const { return *file_; }
  const Weights& matrix(const std::string& name) const { return matrices_.at(name); }
  const Weights& layer_matrix(int layer, const std::string& part) const {
    return matrices_.at("layers." + std::to_string(layer) + "." + part);
  }
  const std::vector<float>& norm(const std::string& name) const { return norms_.at(name); }
  // The bytes of the file, for tests that spoil them.
  std::span<const std::byte> bytes() const { return {storage_.data() + start_, size_}; }

 private:
  void write(const RandomModelSpec& spec);

  ModelShape shape_;
  std::map<std::string, Weights> matrices_;
  std::map<std::string, std::vector<float>> norms_;
  std::vector<std::byte> storage_;  // the file, from an address that is a multiple of 64
  std::size_t start_ = 0, size_ = 0;
  std::unique_ptr<core::PackedFile> file_;
};

inline RandomModel::RandomModel(const RandomModelSpec& spec) : shape_(spec.shape) {
  std::mt19937 random(spec.seed);
  const ModelShape& s = shape_;
  const auto matrix = [&](const std::string& name, WeightKind kind, int rows, int cols) {
    const bool groups = is_affine(kind);
    matrices_.emplace(name, random_weights(kind, rows, cols, groups ? spec.group : 0, random));
  };
  // Norms before attention are small, so that scores are a few units, as in trained models: with
  // random weights they would else be so far apart that rounding errors decide who wins.
  const auto norm = [&](const std::string& name, float size) {
    std::uniform_real_distribution<float> around(0.5F * size, 1.5F * size);
    std::vector<float> weights(static_cast<std::size_t>(s.hidden));
    for (float& weight : weights) weight = around(random);
    norms_.emplace(name, weights);
  };
  matrix("head", spec.head_kind, s.vocabulary, s.hidden);
  if (!s.tied_head) matrix("embed", spec.head_kind, s.vocabulary, s.hidden);
  norm("final_norm", 1.0F);
  for (int layer = 0; layer < s.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    matrix(prefix + "qkv", spec.layer_kind, (s.heads + 2 * s.kv_heads) * s.head_dim, s.hidden);
    matrix(prefix + "o", spec.layer_kind, s.hidden, s.heads * s.head_dim);
    matrix(prefix + "gate_up", spec.layer_kind, 2 * s.intermediate, s.hidden);
    matrix(prefix + "down", spec.layer_kind, s.hidden, s.intermediate);
    norm(prefix + "attn_norm", 0.3F);
    norm(prefix + "mlp_norm", 1.0F);
  }
  write(spec);
  file_ = std::make_unique<core::PackedFile>(bytes(), "random model");
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
inline void RandomModel::write(const RandomModelSpec& spec) {
  using nlohmann::json;
  const ModelShape& s = shape_;
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
  for (const auto& [name, weights] : norms_) {
    add(name, weights.data(), weights.size() * sizeof(float), "F32", weights.size());
    descriptions[name] = {{"kind", "f32"}, {"rows", weights.size()}, {"cols", 1}, {"group", 0}};
  }
  const json metadata = {{"format_version", 1},
                         {"architecture", "llama"},
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
                         {"content_hash", "random " + std::to_string(spec.seed)}};
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
