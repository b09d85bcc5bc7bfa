// Small random draft heads of every layout, and CPU models of them beside their target.
#pragma once

#include <memory>
#include <vector>

#include "cpu/model.h"
#include "tests/draft_heads.h"
#include "tests/packed_builder.h"

namespace specquant::cpu::reference {

inline constexpr int kHidden = 64;
inline constexpr int kVocabulary = 300;
inline constexpr Precision kPrecisions[] = {Precision::fp16, Precision::bf16, Precision::w4a16,
                                            Precision::w4a8, Precision::w4a4};

// 8-bit embeddings would lie on the very edges between the codes of 8-bit activations.
inline RandomModelSpec target_spec() {
  RandomModelSpec spec = small_spec();
  spec.head_kind = WeightKind::affine4;
  return spec;
}

inline const RandomModel& target() {
  static const RandomModel model(target_spec());
  return model;
}

inline RandomModelSpec eagle2_spec() {
  RandomModelSpec spec = eagle2_head(target_spec(), target());
  spec.seed = 21;
  return spec;
}

inline RandomModelSpec eagle3_spec() {
  RandomModelSpec spec = eagle3_head(eagle2_spec());
  spec.seed = 22;
  return spec;
}

inline RandomModelSpec eagle2_own_spec() {
  RandomModelSpec spec = with_all_of_its_own(eagle2_spec());
  spec.seed = 23;
  return spec;
}

// Rows of the target's head.
inline RandomModelSpec eagle2_reduced_spec() {
  RandomModelSpec spec = eagle2_spec();
  spec.seed = 24;
  spec.draft_tokens = frequent_tokens(kVocabulary);
  return spec;
}

// Narrower than the target, an embedding of its own, every token.
inline RandomModelSpec eagle3_narrow_spec() {
  RandomModelSpec spec = eagle3_spec();
  spec.seed = 25;
  spec.shape.hidden = 32;
  spec.shape.layers = 2;
  spec.own_embedding = true;
  spec.draft_tokens.clear();
  return spec;
}

inline RandomModelSpec eagle3_normed_spec() {
  RandomModelSpec spec = eagle3_spec();
  spec.seed = 26;
  spec.more_metadata["norm_before_residual"] = true;
  return spec;
}

inline std::vector<RandomModelSpec> all_specs() {
  return {eagle2_spec(), eagle2_own_spec(),    eagle2_reduced_spec(),
          eagle3_spec(), eagle3_narrow_spec(), eagle3_normed_spec()};
}

inline std::unique_ptr<CpuModel> build(const RandomModel& head, int threads = 2,
                                       const KernelTable& table = kernels()) {
  return std::make_unique<CpuModel>(head.file(), kPrecisions, 4, 128,
                                    std::make_shared<ThreadPool>(threads), table, &target().file());
}

}  // namespace specquant::cpu::reference
