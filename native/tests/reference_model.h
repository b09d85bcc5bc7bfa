// A plain float64 Llama or draft head: no blocks, no vectors, one token after the other. What the
// CPU model is compared with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "tests/packed_builder.h"

namespace specquant::cpu::reference {

// How inputs of matrix products and the KV cache are rounded. Without it everything is float64.
struct Rounding {
  ActivationKind layer_input = ActivationKind::f32;
  ActivationKind head_input = ActivationKind::f32;
  bool kv_f16 = false;
  ActivationKind feature_input = ActivationKind::f32;  // of a draft head's fc or feature_fc
  std::vector<std::string> eight_bits = {};  // matrices whose input has 8 bits nevertheless
  bool stored_f16 = false;  // activations are f16 before they are rounded to integers
};

// A row after the rounding that kernels.h documents for `kind`; f32 leaves it alone.
std::vector<double> rounded(const std::vector<double>& x, ActivationKind kind);

// What stands at each token of a sequence.
struct Outputs {
  std::vector<std::vector<double>> logits;                // [token]
  std::vector<std::vector<std::vector<double>>> streams;  // [token][tap], as Want::taps counts
};

// `features` are one a token, for a draft head: the target's or the head's own, by their width.
Outputs reference_outputs(const RandomModel& model, std::span<const int32_t> tokens,
                          const Rounding& rounding = {},
                          const std::vector<std::vector<double>>& features = {});

}  // namespace specquant::cpu::reference
