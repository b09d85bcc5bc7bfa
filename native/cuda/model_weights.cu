#include "cuda/model_weights.h"

#include <algorithm>

#include "decode/precision_errors.h"

namespace specquant::cuda {
namespace {

using core::TensorKind;

// Final norm of a drawn draft head: logits of this standard deviation, under which a few tokens
// have most of the probability, as under a trained head. Under nearly equal probabilities no tree
// would grow deep.
constexpr float kDrawnHeadNorm = 8.0F;

constexpr const char* kParts[kMatrixKinds] = {"qkv", "o", "gate_up", "down"};

// Activations of the layers are 8-bit integers (or 4-bit ones in the same range).
bool integer_inputs(Precision precision) {
  return precision == Precision::w8a8 || precision == Precision::w4a8 ||
         precision == Precision::w4a4;
}
// Products outside the layers. The head is where a rounding error reaches the logits directly, so
// w4a4 gives it 16 bits, and likewise the product that brings features into a draft head.
bool integer_outer(Precision precision, WeightFormat format) {
  const bool floats = format == WeightFormat::f16 || format == WeightFormat::bf16;
  return !floats && (precision == Precision::w8a8 || precision == Precision::w4a8);
}

// Of 4-bit weights; `wide`: every group is 128 columns.
WeightFormat affine4_format(TensorKind kind, bool wide) {
  if (kind == TensorKind::affine4z) {
    return wide ? WeightFormat::affine4z_g128 : WeightFormat::affine4z_g32;
  }
  return wide ? WeightFormat::affine4_g128 : WeightFormat::affine4_g32;
}

Launchers launchers_for(WeightFormat format, bool integers, int architecture) {
  const Kernels kernels = kernels_of(architecture);
  switch (format) {
    case WeightFormat::f16:
      return launchers_f16(kernels);
    case WeightFormat::bf16:
      return launchers_bf16(kernels);
    case WeightFormat::affine8:
      return integers ? launchers_affine8_s8(kernels) : launchers_affine8_f16(kernels);
    case WeightFormat::affine4_g32:
      return integers ? launchers_affine4_g32_s8(kernels) : launchers_affine4_g32_f16(kernels);
    case WeightFormat::affine4_g128:
      return integers ? launchers_affine4_g128_s8(kernels) : launchers_affine4_g128_f16(kernels);
    case WeightFormat::affine4z_g32:
      return integers ? launchers_affine4z_g32_s8(kernels) : launchers_affine4z_g32_f16(kernels);
    case WeightFormat::affine4z_g128:
      return integers ? launchers_affine4z_g128_s8(kernels) : launchers_affine4z_g128_f16(kernels);
  }
  return {};
}

std::string kernel_name(WeightFormat format, bool integers, int architecture) {
  const bool bf16 = format == WeightFormat::bf16;
  return std::string(name_of(format)) + " x " +
         (integers ? "i8"
          : bf16   ? "bf16"
                   : "f16") +
         (integers ? ", mma.m16n8k32 int8"
          : bf16   ? ", mma.m16n8k16 bf16"
                   : ", mma.m16n8k16 f16") +
         ", sm_" + std::to_string(architecture);
}

}  // namespace

ModelWeights::ModelWeights(const ModelOrigin& origin, int architecture)
    : origin_(origin),
      shape_(origin.shape()),
      architecture_(architecture),
      draft_tokens_(origin.draft_tokens()),
      head_rows_(draft_tokens_.empty() ? shape_.vocabulary
                                       : static_cast<int>(draft_tokens_.size())) {
  place_vectors();
}

void ModelWeights::place_vectors() {
  std::vector<std::string> names;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    names.push_back(prefix + "attn_norm");
    names.push_back(prefix + "mlp_norm");
  }
  names.emplace_back("final_norm");
  names.emplace_back("embed_norm");
  names.emplace_back("fc_bias");
  const auto hidden = static_cast<std::size_t>(shape_.hidden);
  std::vector<float> values(names.size() * hidden, 1.0F);
  for (std::size_t i = 0; origin_.file != nullptr && i < names.size(); ++i) {
    if (!origin_.has(names[i])) continue;
    std::ranges::copy(origin_.tensor(names[i])->floats(), values.data() + i * hidden);
  }
  if (origin_.synthetic.target) {
    const auto final_norm =
        values.begin() + static_cast<std::ptrdiff_t>(2 * shape_.layers * hidden);
    std::fill_n(final_norm, hidden, kDrawnHeadNorm);
  }
  norms_ = DeviceBuffer(values.size() * sizeof(float), "norms");
  check(cudaMemcpy(norms_.as<void>(), values.data(), norms_.bytes(), cudaMemcpyHostToDevice),
        "norms");
}

const float* ModelWeights::vector(const std::string& tensor, int place) const {
  return origin_.has(tensor) ? norms() + static_cast<std::size_t>(place) * shape_.hidden : nullptr;
}

WeightFormat ModelWeights::layer_format(Precision precision) const {
  if (precision == Precision::fp16) return WeightFormat::f16;
  if (precision == Precision::bf16) return WeightFormat::bf16;
  const bool eight = precision == Precision::w8a8;
  if (origin_.file == nullptr) return eight ? WeightFormat::affine8 : WeightFormat::affine4_g128;
  TensorKind kind = TensorKind::affine8;  // of all layers, since one kernel reads them
  if (!eight) {
    const bool zero_points = origin_.file->layer_tensor(0, kParts[0]).kind == TensorKind::affine4z;
    kind = zero_points ? TensorKind::affine4z : TensorKind::affine4;
  }
  bool wide = true;  // every group is 128 columns
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (const char* part : kParts) {
      const core::TensorView& tensor = origin_.file->layer_tensor(layer, part);
      if (tensor.kind != kind) {
        refuse_stored_kind(precision, tensor,
                           eight
                               ? "8-bit weights (affine8)"
                               : "layers of 4-bit weights (on a GPU all affine4 or all affine4z)");
      }
      wide = wide && tensor.group == 128;
    }
  }
  if (eight) return WeightFormat::affine8;
  return affine4_format(kind, wide);
}

WeightFormat ModelWeights::outer_format(Precision precision, const std::string& name) const {
  if (precision == Precision::bf16) return WeightFormat::bf16;
  if (precision == Precision::fp16) return WeightFormat::f16;
  if (origin_.file == nullptr) {
    return name == "feature_fc" ? layer_format(precision) : WeightFormat::f16;
  }
  const core::TensorView& tensor = *origin_.tensor(name);
  switch (tensor.kind) {
    case TensorKind::affine4:
    case TensorKind::affine4z:
      return affine4_format(tensor.kind, tensor.group == 128);
    case TensorKind::affine8:
      return WeightFormat::affine8;
    case TensorKind::bf16:
      return WeightFormat::bf16;
    case TensorKind::f16:
    case TensorKind::f32:
    case TensorKind::i32:
      break;
  }
  return WeightFormat::f16;
}

const DeviceMatrix& ModelWeights::place(const std::string& tensor, int rows, int columns,
                                        WeightFormat format) {
  const std::string key = tensor + " as " + name_of(format);
  const auto found = matrices_.find(key);
  if (found != matrices_.end()) return found->second;
  MatrixOrigin origin;
  origin.rows = rows;
  origin.columns = columns;
  origin.gate_up = tensor.ends_with("gate_up");
  if (origin_.file != nullptr) {
    origin.tensor = origin_.tensor(tensor);
    if (tensor == "head" && !origin_.has("head")) origin.taken = draft_tokens_;
  } else {
    origin.seed = origin_.synthetic.seed;
    for (const char letter : tensor)
      origin.seed = origin.seed * 1099511628211ULL ^ static_cast<uint8_t>(letter);
  }
  return matrices_.emplace(key, place_matrix(origin, format, "weights")).first->second;
}

void ModelWeights::add(Precision precision) {
  if (sets_.contains(precision)) return;
  WeightSet set;
  const WeightFormat format = layer_format(precision);
  const int width = shape_.heads * shape_.head_dim;
  const int rows[kMatrixKinds] = {width + 2 * shape_.kv_heads * shape_.head_dim, shape_.hidden,
                                  2 * shape_.intermediate, shape_.hidden};
  const bool eagle2 = origin_.architecture() == core::Architecture::eagle2;
  const bool eagle3 = origin_.architecture() == core::Architecture::eagle3;
  const int columns[kMatrixKinds] = {eagle3 ? 2 * shape_.hidden : shape_.hidden, width,
                                     shape_.hidden, shape_.intermediate};
  std::vector<const uint8_t*> table;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (int kind = 0; kind < kMatrixKinds; ++kind) {
      const std::string name = "layers." + std::to_string(layer) + "." + kParts[kind];
      set.layers.push_back(&place(name, rows[kind], columns[kind], format));
      table.push_back(set.layers.back()->data.as<uint8_t>());
    }
  }
  const std::string embedding = shape_.tied_head ? "head" : "embed";
  set.head = &place("head", head_rows_, shape_.hidden, outer_format(precision, "head"));
  set.embedding =
      &place(embedding, shape_.vocabulary, shape_.hidden, outer_format(precision, embedding));
  if (eagle2 || eagle3) {
    const char* fc = eagle2 ? "fc" : "feature_fc";
    set.feature_fc = &place(fc, shape_.hidden, eagle2 ? 2 * shape_.hidden : shape_.feature_width,
                            outer_format(precision, fc));
    set.fc_launchers = launchers_for(
        set.feature_fc->format, integer_outer(precision, set.feature_fc->format), architecture_);
  }
  set.table = DeviceBuffer(table.size() * sizeof table[0], "weights");
  check(cudaMemcpy(set.table.as<void>(), table.data(), set.table.bytes(), cudaMemcpyHostToDevice),
        "weights");
  set.layer_launchers = launchers_for(format, integer_inputs(precision), architecture_);
  set.head_launchers =
      launchers_for(set.head->format, integer_outer(precision, set.head->format), architecture_);
  sets_.emplace(precision, std::move(set));
}

const WeightSet& ModelWeights::set(Precision precision) const {
  const auto found = sets_.find(precision);
  if (found == sets_.end()) refuse_unloaded(precision);
  return found->second;
}

std::map<std::string, int64_t> ModelWeights::bytes_by_kind() const {
  std::map<std::string, int64_t> bytes;
  for (const auto& [key, matrix] : matrices_) {
    bytes[name_of(matrix.format)] += static_cast<int64_t>(matrix.data.bytes());
  }
  bytes["f32"] += static_cast<int64_t>(norms_.bytes());
  return bytes;
}

Proof ModelWeights::proof(Precision precision) const {
  const WeightSet& weights = set(precision);
  Proof proof;
  const bool integers = integer_inputs(precision);
  for (const DeviceMatrix* matrix : weights.layers) {
    proof.bytes_per_token += static_cast<int64_t>(matrix->data.bytes());
  }
  const auto add = [&](const DeviceMatrix& matrix) {
    proof.bytes_per_token += static_cast<int64_t>(matrix.data.bytes());
    const std::string name =
        kernel_name(matrix.format, integer_outer(precision, matrix.format), architecture_);
    if (std::ranges::find(proof.kernels, name) == proof.kernels.end()) {
      proof.kernels.push_back(name);
    }
  };
  proof.kernels.push_back(kernel_name(weights.layers[0]->format, integers, architecture_));
  if (weights.feature_fc != nullptr) add(*weights.feature_fc);
  add(*weights.head);
  proof.bytes_per_token +=
      static_cast<int64_t>(weights.embedding->data.bytes()) / shape_.vocabulary;
  proof.bytes_per_token += static_cast<int64_t>(norms_.bytes());
  if (precision == Precision::w4a4) {
    proof.compute_dtype = std::string(kFourBitInputs) + ", on INT8 tensor cores";
    if (kernels_of(architecture_) == Kernels::sm_90) {
      proof.compute_dtype += " (sm_90 has none for INT4)";
    }
  } else if (integers) {
    proof.compute_dtype = kEightBitInputs;
  } else {
    proof.compute_dtype = precision == Precision::bf16 ? "bf16" : "f16";
  }
  if (integers && !integer_outer(precision, weights.head->format)) {
    proof.compute_dtype +=
        weights.head->format == WeightFormat::bf16 ? ", head bf16" : ", head f16";
  }
  proof.compute_dtype += "; f32 sums";
  return proof;
}

}  // namespace specquant::cuda
