// A plain float64 Llama: no blocks, no vectors, one token after the other. What the CPU model is
// compared with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/kernels.h"
#include "tests/packed_builder.h"

namespace specquant::cpu::reference {

// How inputs of matrix products and the KV cache are rounded. Without it everything is float64.
struct Rounding {
  ActivationKind layer_input = ActivationKind::f32;
  ActivationKind head_input = ActivationKind::f32;
  bool kv_f16 = false;
};

// A row after the rounding that kernels.h documents for `kind`; f32 leaves it alone.
std::vector<double> rounded(const std::vector<double>& x, ActivationKind kind);

// What stands at each token of a sequence.
struct Outputs {
  std::vector<std::vector<double>> logits;                // [token]
  std::vector<std::vector<std::vector<double>>> streams;  // [token][tap], as Want::taps counts
};

Outputs reference_outputs(const RandomModel& model, std::span<const int32_t> tokens,
                          const Rounding& rounding = {});

}  // namespace specquant::cpu::reference
