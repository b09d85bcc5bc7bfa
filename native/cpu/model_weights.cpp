#include "cpu/model_weights.h"

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include "core/errors.h"
#include "cpu/model_tiles.h"

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
      break;
  }
  return WeightKind::f16;  // f32 tensors are vectors and never come here
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

[[noreturn]] void refuse(Precision precision, const TensorView& tensor, const std::string& need) {
  throw core::Error(core::ErrorType::unsupported,
                    "Precision " + std::string(specquant::name_of(precision)) + " needs " + need +
                        ", but tensor '" + tensor.name + "' is stored as " +
                        core::name_of(tensor.kind) +
                        ". Choose a precision that the file serves, or pack the checkpoint again.");
}

void check_stored_kind(Precision precision, const TensorView& tensor) {
  if (converts(precision)) return;
  if (precision == Precision::w8a8) {
    if (tensor.kind != TensorKind::affine8) refuse(precision, tensor, "8-bit weights (affine8)");
  } else if (!is_affine4(weight_kind(tensor.kind))) {
    refuse(precision, tensor, "4-bit weights (affine4 or affine4z)");
  }
}

void check_shapes(const core::PackedFile& file) {
  const ModelShape& shape = file.shape();
  if (shape.head_dim % 16 != 0) {
    throw core::Error(core::ErrorType::model,
                      "Model " + file.name() + ": tensor 'layers.0.qkv' has heads of " +
                          std::to_string(shape.head_dim) +
                          " dimensions; the CPU engine needs a multiple of 16.");
  }
}

ActivationKind layer_activation(Precision precision) {
  switch (precision) {
    case Precision::fp16:
      return ActivationKind::f32;
    case Precision::bf16:
      return ActivationKind::bf16;
    case Precision::w4a16:
      return ActivationKind::i16;
    case Precision::w4a8:
    case Precision::w8a8:
      return ActivationKind::i8;
    case Precision::w4a4:
      return ActivationKind::u4;
  }
  return ActivationKind::f32;
}

// The head is where a rounding error reaches the logits directly, so w4a4 gives it 16 bits.
ActivationKind head_activation(Precision precision, WeightKind head) {
  if (head == WeightKind::f16) return ActivationKind::f32;
  if (head == WeightKind::bf16) return ActivationKind::bf16;
  return precision == Precision::w4a8 || precision == Precision::w8a8 ? ActivationKind::i8
                                                                      : ActivationKind::i16;
}

constexpr std::array kLayerMatrices{"qkv", "o", "gate_up", "down"};

}  // namespace

const char* name_of(WeightKind kind) {
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
  return "f16";
}

const char* name_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::f32:
      return "f32";
    case ActivationKind::bf16:
      return "bf16";
    case ActivationKind::i16:
      return "i16";
    case ActivationKind::i8:
      return "i8";
    case ActivationKind::u4:
      return "u4";
  }
  return "f32";
}

ModelWeights::ModelWeights(const core::PackedFile& file, std::span<const Precision> precisions,
                           ThreadPool& pool)
    : arena_(static_cast<std::size_t>(bytes_needed(file, precisions))) {
  check_shapes(file);
  for (const auto& [name, tensor] : file.tensors()) {
    if (tensor.kind == TensorKind::f32) {
      bytes_by_kind_[core::name_of(tensor.kind)] += static_cast<int64_t>(tensor.bytes.size());
    }
  }
  for (const Precision precision : precisions) {
    if (!sets_.contains(precision)) sets_.emplace(precision, build(precision, file, pool));
  }
}

double ModelWeights::bytes_needed(const core::PackedFile& file,
                                  std::span<const Precision> precisions) {
  double bytes = 0.0;
  for (const auto& [name, tensor] : file.tensors()) {
    if (tensor.kind == TensorKind::f32) continue;
    std::set<WeightKind> kinds;
    for (const Precision precision : precisions) kinds.insert(kind_for(precision, tensor));
    for (const WeightKind kind : kinds) bytes += static_cast<double>(placed_bytes(tensor, kind));
  }
  return bytes;
}

const WeightSet& ModelWeights::set(Precision precision) const {
  const auto found = sets_.find(precision);
  if (found == sets_.end()) {
    throw std::invalid_argument("Precision " + std::string(specquant::name_of(precision)) +
                                " was not named when the model was loaded.");
  }
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
    if (!convert(matrix, kind, reinterpret_cast<uint16_t*>(out), pool)) {
      throw core::Error(core::ErrorType::model,
                        "Tensor '" + tensor.name +
                            "' has weights that are too large for fp16. Use bf16 as the 16-bit "
                            "precision.");
    }
    matrix.kind = kind;
    matrix.group = 0;
    bytes_by_kind_[std::string(name_of(kind)) + " (converted)"] += static_cast<int64_t>(bytes);
  }
  matrix.tiles = out;
  return placed_.emplace(key, matrix).first->second;
}

WeightSet ModelWeights::build(Precision precision, const core::PackedFile& file, ThreadPool& pool) {
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
    set.layers.push_back({matrix("qkv"), matrix("o"), matrix("gate_up"), matrix("down"),
                          file.layer_tensor(layer, "attn_norm").floats().data(),
                          file.layer_tensor(layer, "mlp_norm").floats().data()});
  }
  set.head = place(precision, file.head(), pool);
  set.embedding = place(precision, file.embedding(), pool);
  set.final_norm = file.tensor("final_norm").floats().data();
  set.layer_input = layer_activation(precision);
  set.head_input = head_activation(precision, set.head.kind);
  return set;
}

}  // namespace specquant::cpu
