#include "tests/reference_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/hadamard.h"
#include "cpu/half.h"

namespace specquant::cpu::reference {
namespace {

using Vector = std::vector<double>;

double f16(double x) { return float_from_f16(f16_from_float(static_cast<float>(x))); }
// As the CUDA engine stores activations: what f16 cannot hold becomes its largest.
double stored_f16(double x) { return f16(std::clamp(x, -65504.0, 65504.0)); }

Vector product(const Weights& weights, const Vector& x) {
  Vector y(static_cast<std::size_t>(weights.matrix.rows), 0.0);
  for (int row = 0; row < weights.matrix.rows; ++row) {
    for (int col = 0; col < weights.matrix.cols; ++col) y[row] += weights.at(row, col) * x[col];
  }
  return y;
}

Vector normalized(const Vector& x, const std::vector<float>& weight, double epsilon,
                  bool stored = false) {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (stored ? stored_f16(x[i] * weight[i]) : x[i] * weight[i]) * scale;
  return y;
}

// Radians a position, as `_compute_llama3_parameters` and `_compute_linear_scaling_rope_parameters`
// of transformers say it.
double frequency(const core::PackedFile& file, int pair) {
  const core::RopeScaling& scaling = file.metadata().rope_scaling;
  const double inverse = std::pow(file.shape().rope_theta, -2.0 * pair / file.shape().head_dim);
  if (scaling.kind == core::RopeScaling::Kind::none) return inverse;
  if (scaling.kind == core::RopeScaling::Kind::linear) return inverse / scaling.factor;
  const double wavelength = 2.0 * std::acos(-1.0) / inverse;
  const double length = scaling.original_max_position;
  if (wavelength < length / scaling.high_freq_factor) return inverse;
  if (wavelength > length / scaling.low_freq_factor) return inverse / scaling.factor;
  const double smooth = (length / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * inverse / scaling.factor + smooth * inverse;
}

// Rotates one head; pair i is dimensions 2i and 2i + 1.
void rotate(double* head, const core::PackedFile& file, int position) {
  for (int pair = 0; pair < file.shape().head_dim / 2; ++pair) {
    const double angle = position * frequency(file, pair);
    const double a = head[2 * pair];
    const double b = head[2 * pair + 1];
    head[2 * pair] = a * std::cos(angle) - b * std::sin(angle);
    head[2 * pair + 1] = a * std::sin(angle) + b * std::cos(angle);
  }
}

// H·x with the whole matrix (H_m ⊗ H_2^k) / √width, for the model's matrices that have it.
Vector transformed(const Vector& x) {
  const core::Hadamard h = core::hadamard_of(static_cast<int>(x.size())).value();
  Vector y(x.size(), 0.0);
  for (int i = 0; i < h.width(); ++i) {
    for (int j = 0; j < h.width(); ++j) {
      const int small = h.signs[i / h.power * h.order + j / h.power];
      const int ones = std::popcount(static_cast<unsigned>((i % h.power) & (j % h.power)));
      y[i] += (ones % 2 == 0 ? small : -small) * x[j] / std::sqrt(h.width());
    }
  }
  return y;
}

struct LayerCache {
  std::vector<Vector> keys, values;  // [position][kv head · dimension]
};

Vector attention(const ModelShape& s, const Vector& query, const LayerCache& cache) {
  Vector out(static_cast<std::size_t>(s.heads) * s.head_dim, 0.0);
  for (int head = 0; head < s.heads; ++head) {
    const int from = head / (s.heads / s.kv_heads) * s.head_dim;
    Vector weight(cache.keys.size());
    double total = 0.0;
    for (std::size_t t = 0; t < weight.size(); ++t) {
      double score = 0.0;
      for (int d = 0; d < s.head_dim; ++d) {
        score += query[head * s.head_dim + d] * cache.keys[t][from + d];
      }
      weight[t] = std::exp(score / std::sqrt(s.head_dim));
      total += weight[t];
    }
    for (std::size_t t = 0; t < weight.size(); ++t) {
      for (int d = 0; d < s.head_dim; ++d) {
        out[head * s.head_dim + d] += weight[t] / total * cache.values[t][from + d];
      }
    }
  }
  return out;
}

void add(Vector& x, const Vector& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

void round_group(const double* x, ActivationKind kind, double* out) {
  const int columns = activation_group(kind);
  float low = 0.0F, high = 0.0F;
  for (int i = 0; i < columns; ++i) {
    low = std::min(low, static_cast<float>(x[i]));
    high = std::max(high, static_cast<float>(x[i]));
  }
  if (kind == ActivationKind::u4 || kind == ActivationKind::u4g16) {
    const float level = high / 15.0F - low / 15.0F;
    if (level == 0.0F) return std::fill(out, out + columns, 0.0);
    const float zero = std::nearbyint(-low * 8.0F / level);
    for (int i = 0; i < columns; ++i) {
      const float place = static_cast<float>(x[i]) / level + zero / 8.0F;
      const float code = std::nearbyint(std::clamp(place, 0.0F, 15.0F));
      out[i] = static_cast<double>(level) / 8.0 * (8.0 * code - zero);
    }
    return;
  }
  const float largest = kind == ActivationKind::i8 ? 127.0F : 32639.0F;
  const float scale = std::max(-low, high) / largest;
  for (int i = 0; i < columns; ++i) {
    out[i] = scale == 0.0F ? 0.0 : std::nearbyint(x[i] / scale) * static_cast<double>(scale);
  }
}

}  // namespace

std::vector<double> rounded(const std::vector<double>& x, ActivationKind kind) {
  if (kind == ActivationKind::f32) return x;
  Vector y(x.size());
  if (kind == ActivationKind::bf16) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] = float_from_bf16(bf16_from_float(static_cast<float>(x[i])));
    }
    return y;
  }
  for (std::size_t i = 0; i < x.size(); i += activation_group(kind)) {
    round_group(x.data() + i, kind, y.data() + i);
  }
  return y;
}

namespace {

using core::Architecture;

Vector row_of(const Weights& weights, int row) {
  Vector values(static_cast<std::size_t>(weights.matrix.cols));
  for (int i = 0; i < weights.matrix.cols; ++i) values[i] = weights.at(row, i);
  return values;
}

const Weights& embedding_of(const RandomModel& model) {
  if (model.has("embed")) return model.matrix("embed");
  return model.shape().tied_head ? model.matrix("head") : embedding_of(*model.spec().target);
}

Vector joined(Vector first, const Vector& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The residual stream in front of the first layer.
Vector stream_of(const RandomModel& model, const Vector& embedding, const Vector& feature,
                 const Rounding& rounding) {
  const Architecture architecture = model.spec().architecture;
  if (architecture == Architecture::llama) return embedding;
  if (architecture == Architecture::eagle2) {
    Vector stream =
        product(model.matrix("fc"), rounded(joined(embedding, feature), rounding.feature_input));
    for (std::size_t i = 0; model.has("fc_bias") && i < stream.size(); ++i) {
      stream[i] += model.vector("fc_bias")[i];
    }
    return stream;
  }
  if (static_cast<int>(feature.size()) == model.shape().hidden) return feature;
  return product(model.matrix("feature_fc"), rounded(feature, rounding.feature_input));
}

Vector normalized_by(const RandomModel& model, const std::string& name, const Vector& x,
                     bool stored = false) {
  if (!model.has(name)) return x;
  return normalized(x, model.vector(name), model.shape().norm_epsilon, stored);
}

// Adds the bias of q, k and v, and normalizes and rotates each head of q and k.
void finish_heads(const RandomModel& model, const std::string& prefix, int position, Vector& qkv) {
  const ModelShape& s = model.shape();
  if (model.has(prefix + "qkv_bias")) {
    for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] += model.vector(prefix + "qkv_bias")[i];
  }
  for (int head = 0; head < s.heads + s.kv_heads; ++head) {
    double* values = qkv.data() + head * s.head_dim;
    const Vector before(values, values + s.head_dim);
    const Vector after =
        normalized_by(model, prefix + (head < s.heads ? "q_norm" : "k_norm"), before);
    std::ranges::copy(after, values);
    rotate(values, model.file(), position);
  }
}

Vector logits_of(const RandomModel& model, const Vector& x) {
  if (model.has("head")) return product(model.matrix("head"), x);
  const Vector whole = product(model.spec().target->matrix("head"), x);
  if (model.spec().draft_tokens.empty()) return whole;
  Vector reduced;
  for (const int32_t token : model.spec().draft_tokens) reduced.push_back(whole[token]);
  return reduced;
}

}  // namespace

Outputs reference_outputs(const RandomModel& model, std::span<const int32_t> tokens,
                          const Rounding& rounding, const std::vector<Vector>& features) {
  const ModelShape& s = model.shape();
  const core::PackedMetadata& metadata = model.file().metadata();
  const int query_width = s.heads * s.head_dim;
  const int key_width = s.kv_heads * s.head_dim;
  const auto kv = [&](double x) { return rounding.kv_f16 ? f16(x) : x; };
  const auto stored = [&](Vector values) {
    if (rounding.stored_f16) std::ranges::transform(values, values.begin(), stored_f16);
    return values;
  };
  std::vector<LayerCache> caches(static_cast<std::size_t>(s.layers));
  Outputs all;
  for (std::size_t position = 0; position < tokens.size(); ++position) {
    const Vector embedding = row_of(embedding_of(model), tokens[position]);
    Vector x =
        stream_of(model, embedding, features.empty() ? Vector() : features[position], rounding);
    std::vector<Vector> streams;
    for (int layer = 0; layer < s.layers; ++layer) {
      streams.push_back(x);
      const std::string prefix = "layers." + std::to_string(layer) + ".";
      const auto layer_product = [&](const char* part, const Vector& input) {
        Vector ordered = input;
        if (const auto* columns = model.columns(prefix + part)) {
          for (std::size_t i = 0; i < input.size(); ++i) ordered[i] = input[(*columns)[i]];
        }
        const bool eight =
            std::ranges::find(rounding.eight_bits, part) != rounding.eight_bits.end();
        const ActivationKind kind = eight ? ActivationKind::i8 : rounding.layer_input;
        return product(model.layer_matrix(layer, part), rounded(ordered, kind));
      };
      Vector attention_input = normalized_by(model, prefix + "attn_norm", x, rounding.stored_f16);
      if (layer == 0 && metadata.norm_before_residual) x = streams.back() = attention_input;
      if (layer == 0 && model.spec().architecture == Architecture::eagle3) {
        attention_input = joined(normalized_by(model, "embed_norm", embedding), attention_input);
      }
      Vector qkv = layer_product("qkv", attention_input);
      finish_heads(model, prefix, static_cast<int>(position), qkv);
      std::ranges::copy(stored(Vector(qkv.begin(), qkv.begin() + query_width)), qkv.begin());
      Vector key(qkv.begin() + query_width, qkv.begin() + query_width + key_width);
      Vector value(qkv.begin() + query_width + key_width, qkv.end());
      std::ranges::transform(key, key.begin(), kv);
      std::ranges::transform(value, value.begin(), kv);
      LayerCache& cache = caches[static_cast<std::size_t>(layer)];
      cache.keys.push_back(key);
      cache.values.push_back(value);
      const Vector attended = attention(s, qkv, cache);
      add(x, layer_product("o", stored(metadata.hadamard_o ? transformed(attended) : attended)));

      const Vector gate_up = layer_product(
          "gate_up", normalized_by(model, prefix + "mlp_norm", x, rounding.stored_f16));
      Vector hidden(static_cast<std::size_t>(s.intermediate));
      for (int i = 0; i < s.intermediate; ++i) {
        const double gate = gate_up[i / 16 * 32 + i % 16];
        const double up = gate_up[i / 16 * 32 + 16 + i % 16];
        hidden[i] = gate / (1.0 + std::exp(-gate)) * up;
      }
      add(x, layer_product("down", stored(metadata.hadamard_down ? transformed(hidden) : hidden)));
    }
    const Vector last = normalized_by(model, "final_norm", x, rounding.stored_f16);
    all.logits.push_back(logits_of(model, rounded(last, rounding.head_input)));
    streams.push_back(x);
    streams.push_back(last);
    all.streams.push_back(streams);
  }
  return all;
}

}  // namespace specquant::cpu::reference
