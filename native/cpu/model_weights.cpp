#include "cpu/model_weights.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/errors.h"
#include "cpu/model_tiles.h"
#include "decode/precision_errors.h"

namespace specquant::cpu {
namespace {

using core::TensorKind;
using core::TensorView;

WeightKind weight_kind(TensorKind kind) {
  switch (kind) {
    case TensorKind::affine4:
      return WeightKind::affine4;
    case TensorKind::affine4z:
      return WeightKind::affine4z;
    case TensorKind::affine8:
      return WeightKind::affine8;
    case TensorKind::bf16:
      return WeightKind::bf16;
    case TensorKind::f16:
    case TensorKind::f32:
    case TensorKind::i32:
      break;
  }
  return WeightKind::f16;  // vectors never come here
}

Matrix stored(const TensorView& tensor) {
  return {weight_kind(tensor.kind), tensor.rows, tensor.cols, tensor.group, tensor.bytes.data()};
}

// The kind that a precision of 16-bit weights needs in every matrix.
bool converts(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16;
}
WeightKind converted_kind(Precision precision) {
  return precision == Precision::fp16 ? WeightKind::f16 : WeightKind::bf16;
}

// The kind in which a precision reads a tensor.
WeightKind kind_for(Precision precision, const TensorView& tensor) {
  return converts(precision) ? converted_kind(precision) : weight_kind(tensor.kind);
}

// Bytes that a tensor takes in memory as `kind`, whole cache lines.
std::size_t placed_bytes(const TensorView& tensor, WeightKind kind) {
  const Matrix matrix{kind, tensor.rows, tensor.cols, tensor.group, nullptr};
  return (matrix.tile_bytes() * matrix.tile_count() + 63) / 64 * 64;
}

void check_stored_kind(Precision precision, const TensorView& tensor) {
  if (converts(precision)) return;
  if (precision == Precision::w8a8) {
    if (tensor.kind != TensorKind::affine8)
      refuse_stored_kind(precision, tensor, "8-bit weights (affine8)");
  } else if (!is_affine4(weight_kind(tensor.kind))) {
    refuse_stored_kind(precision, tensor, "4-bit weights (affine4 or affine4z)");
  }
}

void check_shapes(const core::PackedFile& file) {
  const ModelShape& shape = file.shape();
  const auto refuse_heads = [&](const std::string& tensor, const std::string& need) {
    throw core::Error(core::ErrorType::model,
                      "Model " + file.name() + ": tensor '" + tensor + "' has heads of " +
                          std::to_string(shape.head_dim) + " dimensions; the CPU engine needs " +
                          need + ".");
  };
  if (shape.head_dim % kTileRows != 0) refuse_heads("layers.0.qkv", "a multiple of 16");
  if (file.find_in_layer(0, "q_norm") != nullptr && shape.head_dim > kLargestNormedHead) {
    refuse_heads("layers.0.q_norm", "at most " + std::to_string(kLargestNormedHead));
  }
}

LayerInputs layer_inputs(Precision precision) {
  const auto everywhere = [](ActivationKind kind) { return LayerInputs{kind, kind, kind, kind}; };
  const ActivationKind i8 = ActivationKind::i8;
  const bool group16 = precision == Precision::w4a4_g16 || precision == Precision::w4a4_g16_qkv8 ||
                       precision == Precision::w4a4_g16_od8;
  const ActivationKind u4 = group16 ? ActivationKind::u4g16 : ActivationKind::u4;
  switch (precision) {
    case Precision::fp16:
      return everywhere(ActivationKind::f32);
    case Precision::bf16:
      return everywhere(ActivationKind::bf16);
    case Precision::w4a16:
      return everywhere(ActivationKind::i16);
    case Precision::w4a8:
    case Precision::w8a8:
      return everywhere(i8);
    case Precision::w4a4:
    case Precision::w4a4_g16:
      return everywhere(u4);
    case Precision::w4a4_qkv8:
    case Precision::w4a4_g16_qkv8:
      return {i8, u4, u4, u4};
    case Precision::w4a4_od8:
    case Precision::w4a4_g16_od8:
      return {u4, i8, u4, i8};
  }
  return everywhere(ActivationKind::f32);
}

// Of a product outside the layers. At the head a rounding error reaches the logits directly, so
// w4a4 gives it 16 bits; and the product that brings features into a draft head likewise.
ActivationKind outer_activation(Precision precision, WeightKind weights) {
  if (weights == WeightKind::f16) return ActivationKind::f32;
  if (weights == WeightKind::bf16) return ActivationKind::bf16;
  return precision == Precision::w4a8 || precision == Precision::w8a8 ? ActivationKind::i8
                                                                      : ActivationKind::i16;
}

constexpr std::array kLayerMatrices{"qkv", "o", "gate_up", "down"};

const float* optional_floats(const TensorView* tensor) {
  return tensor == nullptr ? nullptr : tensor->floats().data();
}

// The head that the model computes: its own, the target's, or the target's rows for the draft
// vocabulary, still without bytes.
TensorView described_head(const core::PackedFile& file, const core::PackedFile* target) {
  if (const TensorView* own = file.find("head")) return *own;
  TensorView head = target->head();
  if (!file.draft_tokens().empty()) {
    head.rows = static_cast<int>(file.draft_tokens().size());
    head.bytes = {};
  }
  return head;
}

}  // namespace

ModelWeights::ModelWeights(const core::PackedFile& file, const core::PackedFile* target,
                           std::span<const Precision> precisions, ThreadPool& pool)
    : arena_(static_cast<std::size_t>(bytes_needed(file, target, precisions))) {
  check_shapes(file);
  for (const auto& [name, tensor] : file.tensors()) {
    if (core::is_vector(tensor.kind)) {
      bytes_by_kind_[core::name_of(tensor.kind)] += static_cast<int64_t>(tensor.bytes.size());
    }
  }
  TensorView head = described_head(file, target);
  head_rows_ = head.rows;
  std::vector<std::byte> taken;
  if (head.bytes.empty()) {
    taken.resize(stored(head).tile_bytes() * stored(head).tile_count());
    take_rows(stored(target->head()), file.draft_tokens(), taken.data());
    head.bytes = taken;
  }
  for (const Precision precision : precisions) {
    if (sets_.contains(precision)) continue;
    sets_.emplace(precision, build(precision, file, target, head, pool));
  }
}

double ModelWeights::bytes_needed(const core::PackedFile& file, const core::PackedFile* target,
                                  std::span<const Precision> precisions) {
  double bytes = 0.0;
  const auto add = [&](const TensorView& tensor) {
    std::set<WeightKind> kinds;
    for (const Precision precision : precisions) kinds.insert(kind_for(precision, tensor));
    for (const WeightKind kind : kinds) bytes += static_cast<double>(placed_bytes(tensor, kind));
  };
  for (const auto& [name, tensor] : file.tensors()) {
    if (!core::is_vector(tensor.kind)) add(tensor);
  }
  if (file.find("head") == nullptr) add(described_head(file, target));
  return bytes;
}

const WeightSet& ModelWeights::set(Precision precision) const {
  const auto found = sets_.find(precision);
  if (found == sets_.end()) refuse_unloaded(precision);
  return found->second;
}

Matrix ModelWeights::place(Precision precision, const TensorView& tensor, ThreadPool& pool) {
  const WeightKind kind = kind_for(precision, tensor);
  const std::string key = tensor.name + " as " + name_of(kind);
  const auto found = placed_.find(key);
  if (found != placed_.end()) return found->second;

  Matrix matrix = stored(tensor);
  std::byte* out = arena_.data() + arena_used_;
  const std::size_t bytes = placed_bytes(tensor, kind);
  arena_used_ += bytes;
  if (kind == matrix.kind) {
    std::ranges::copy(tensor.bytes, out);
    bytes_by_kind_[name_of(kind)] += static_cast<int64_t>(tensor.bytes.size());
  } else {
    if (!convert(matrix, kind, reinterpret_cast<uint16_t*>(out), pool)) refuse_for_f16(tensor.name);
    matrix.kind = kind;
    matrix.group = 0;
    bytes_by_kind_[std::string(name_of(kind)) + " (converted)"] += static_cast<int64_t>(bytes);
  }
  matrix.tiles = out;
  return placed_.emplace(key, matrix).first->second;
}

WeightSet ModelWeights::build(Precision precision, const core::PackedFile& file,
                              const core::PackedFile* target, const TensorView& head,
                              ThreadPool& pool) {
  WeightSet set;
  for (int layer = 0; layer < file.shape().layers; ++layer) {
    for (const char* part : kLayerMatrices) {
      check_stored_kind(precision, file.layer_tensor(layer, part));
    }
  }
  for (int layer = 0; layer < file.shape().layers; ++layer) {
    const auto matrix = [&](const char* part) {
      return place(precision, file.layer_tensor(layer, part), pool);
    };
    const auto vector = [&](const char* part) {
      return optional_floats(file.find_in_layer(layer, part));
    };
    const auto columns = [&](const char* part) {
      const TensorView* tensor = file.find_in_layer(layer, part);
      return tensor == nullptr ? nullptr : tensor->integers().data();
    };
    set.layers.push_back({matrix("qkv"), matrix("o"), matrix("gate_up"), matrix("down"),
                          vector("attn_norm"), vector("mlp_norm"), vector("qkv_bias"),
                          vector("q_norm"), vector("k_norm"), columns("qkv_columns"),
                          columns("o_columns"), columns("gate_up_columns"),
                          columns("down_columns")});
  }
  set.head = place(precision, head, pool);
  const bool own_embedding = file.shape().tied_head || file.find("embed") != nullptr;
  set.embedding =
      own_embedding ? place(precision, file.embedding(), pool) : stored(target->embedding());
  set.final_norm = optional_floats(file.find("final_norm"));
  set.layer_inputs = layer_inputs(precision);
  set.head_input = outer_activation(precision, set.head.kind);
  for (const char* name : {"fc", "feature_fc"}) {
    const TensorView* tensor = file.find(name);
    if (tensor == nullptr) continue;
    set.feature_fc = place(precision, *tensor, pool);
    set.feature_input = outer_activation(precision, set.feature_fc.kind);
  }
  set.fc_bias = optional_floats(file.find("fc_bias"));
  set.embed_norm = optional_floats(file.find("embed_norm"));
  return set;
}

}  // namespace specquant::cpu
