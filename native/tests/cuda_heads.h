// Small random draft heads of every layout that the CUDA engine serves.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/cuda_parts.h"
#include "tests/draft_heads.h"
#include "tests/packed_builder.h"

namespace specquant::test {

using cpu::WeightKind;
using cpu::reference::random_sequence;
using cpu::reference::RandomModel;
using cpu::reference::RandomModelSpec;
using cpu::reference::Sequence;

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

inline RandomModelSpec eagle2_spec() {
  RandomModelSpec spec = cpu::reference::eagle2_head(target_spec(), target());
  spec.seed = 21;
  return spec;
}

inline RandomModelSpec eagle2_own_spec() {
  RandomModelSpec spec = cpu::reference::with_all_of_its_own(eagle2_spec());
  spec.seed = 22;
  return spec;
}

// Rows of the target's head.
inline RandomModelSpec eagle2_reduced_spec() {
  RandomModelSpec spec = eagle2_spec();
  spec.seed = 23;
  spec.draft_tokens = cpu::reference::frequent_tokens(kVocabulary);
  return spec;
}

inline RandomModelSpec eagle3_spec() {
  RandomModelSpec spec = cpu::reference::eagle3_head(eagle2_spec());
  spec.seed = 24;
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

}  // namespace specquant::test
