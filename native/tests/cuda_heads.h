// Small random draft heads of every layout that the CUDA engine serves, and what is put to them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/cuda_parts.h"
#include "tests/packed_builder.h"

namespace specquant::test {

using core::Architecture;
using cpu::WeightKind;
using cpu::reference::RandomModel;
using cpu::reference::RandomModelSpec;

inline constexpr int kContext = 192, kSlots = 4, kVocabulary = 300;
inline constexpr Precision kPrecisions[] = {Precision::fp16, Precision::bf16, Precision::w4a16,
                                            Precision::w4a8, Precision::w4a4};

// 192 columns (no whole stage), three query heads for a key-value head, stretched positions.
inline RandomModelSpec target_spec() {
  RandomModelSpec spec;
  spec.shape = {192, 256, 2, 3, 1, 64, kVocabulary, 512, 10000.0F, 1e-5F, true};
  spec.layer_kind = spec.head_kind = WeightKind::affine4;
  spec.group = 64;
  spec.more_metadata["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  return spec;
}

inline const RandomModel& target() {
  static const RandomModel model(target_spec());
  return model;
}

// One layer behind fc; the target's embedding and output head.
inline RandomModelSpec eagle2_spec() {
  RandomModelSpec spec = target_spec();
  spec.shape.layers = 1;
  spec.shape.tied_head = false;
  spec.seed = 21;
  spec.architecture = Architecture::eagle2;
  spec.target = &target();
  spec.taps = {3};
  spec.own_embedding = spec.own_head = spec.first_norm = spec.final_norm = false;
  return spec;
}

// Everything of its own, and a second layer.
inline RandomModelSpec eagle2_own_spec() {
  RandomModelSpec spec = eagle2_spec();
  spec.shape.layers = 2;
  spec.seed = 22;
  spec.own_embedding = spec.own_head = spec.first_norm = spec.final_norm = spec.fc_bias = true;
  return spec;
}

inline std::vector<int32_t> frequent_tokens() {
  std::vector<int32_t> tokens;
  for (int token = 1; token < kVocabulary; token += 1 + token % 3) tokens.push_back(token);
  return tokens;
}

// Rows of the target's head.
inline RandomModelSpec eagle2_reduced_spec() {
  RandomModelSpec spec = eagle2_spec();
  spec.seed = 23;
  spec.draft_tokens = frequent_tokens();
  return spec;
}

inline RandomModelSpec eagle3_spec() {
  RandomModelSpec spec = eagle2_spec();
  spec.architecture = Architecture::eagle3;
  spec.seed = 24;
  spec.taps = {0, 1, 2};
  spec.first_norm = spec.final_norm = spec.own_head = true;
  spec.draft_tokens = frequent_tokens();
  return spec;
}

// Narrower than its target, 8-bit head in groups of 64, the stream is the normed feature.
inline RandomModelSpec eagle3_normed_spec() {
  RandomModelSpec spec = eagle3_spec();
  spec.seed = 25;
  spec.shape.hidden = 64;
  spec.shape.heads = 1;
  spec.own_embedding = true;
  spec.head_kind = WeightKind::affine8;
  spec.more_metadata["norm_before_residual"] = true;
  return spec;
}

inline std::vector<RandomModelSpec> all_specs() {
  return {eagle2_spec(), eagle2_own_spec(), eagle2_reduced_spec(), eagle3_spec(),
          eagle3_normed_spec()};
}

inline std::unique_ptr<Model> build(const RandomModel& model,
                                    std::span<const Precision> precisions = kPrecisions) {
  const bool head = model.file().metadata().target.has_value();
  return cuda::make_cuda_model(model.file(), precisions, kSlots, kContext,
                               head ? &target().file() : nullptr);
}

// Tokens, and features of `width` a token.
struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<float> features;
  int width = 0;

  Rows rows(int slot, int first, int count) const {
    return {slot,
            first,
            std::span(tokens).subspan(first, count),
            {},
            -1,
            std::span(features).subspan(static_cast<std::size_t>(first) * width,
                                        static_cast<std::size_t>(count) * width)};
  }
};

inline Sequence random_sequence(int count, int width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Sequence sequence{{}, std::vector<float>(static_cast<std::size_t>(count) * width), width};
  sequence.tokens = random_tokens(count, random, kVocabulary);
  for (float& value : sequence.features) value = normal(random);
  return sequence;
}

}  // namespace specquant::test
