// Small random models of every layout that the CUDA engine serves.
#pragma once

#include <memory>
#include <span>

#include "cuda/model.h"
#include "tests/packed_builder.h"

namespace specquant::test {

using cpu::WeightKind;
using cpu::reference::RandomModel;
using cpu::reference::RandomModelSpec;

inline constexpr int kContext = 320, kSlots = 9;

inline RandomModelSpec spec_of(ModelShape shape, WeightKind layers, WeightKind head, int group,
                               unsigned seed) {
  RandomModelSpec spec;
  spec.shape = shape;
  spec.layer_kind = layers;
  spec.head_kind = head;
  spec.group = group;
  spec.seed = seed;
  return spec;
}

// Groups of 64, three query heads for a key-value head, 192 columns (no whole stage), a 4-bit head.
inline RandomModelSpec narrow_spec() {
  return spec_of({192, 256, 2, 3, 1, 64, 300, 512, 100000.0F, 1e-5F, false}, WeightKind::affine4,
                 WeightKind::affine4, 64, 2);
}
// Groups of 128 and heads of 128, parts of several stages, a tied 8-bit head in groups of 32.
inline RandomModelSpec wide_spec() {
  return spec_of({512, 2048, 2, 4, 2, 128, 300, 512, 10000.0F, 1e-5F, true}, WeightKind::affine4,
                 WeightKind::affine8, 128, 3);
}
// The same with integer zero points, in the embedding and the head too: groups of 32 or 64 as the
// narrow model's, of 128 as the wide one's with its head tied.
inline RandomModelSpec zero_point_spec(int group) {
  RandomModelSpec spec = group == 128 ? wide_spec() : narrow_spec();
  spec.layer_kind = spec.head_kind = WeightKind::affine4z;
  spec.group = group;
  spec.seed = static_cast<unsigned>(group);
  return spec;
}
inline RandomModelSpec eight_bit_spec() {
  RandomModelSpec spec = narrow_spec();
  spec.layer_kind = spec.head_kind = WeightKind::affine8;
  spec.group = 32;
  return spec;
}

inline std::unique_ptr<Model> build(const RandomModel& random,
                                    std::span<const Precision> precisions) {
  return cuda::make_cuda_model(random.file(), precisions, kSlots, kContext);
}

}  // namespace specquant::test
