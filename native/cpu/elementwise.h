// The float arithmetic between the matrix products, compiled once for each instruction set.
//
// As in kernels.h, results are bitwise the same on every instruction set: all sums run over sixteen
// lanes and end in one fixed tree, and the exponential is a polynomial of our own.
#pragma once

#include <cstdint>
#include <string>

#include "cpu/attention.h"
#include "decode/device.h"

namespace specquant::cpu {

// The best entries of a stretch of logits in falling order, equal logits by rising id.
// NaN counts as minus infinity, so that the ids are valid whatever the model computes.
struct TopList {
  TopEntry* entries = nullptr;
  int capacity = 0;
  int count = 0;
};

// Largest logit of a stretch and Σ exp(logit − largest): parts of a log-sum that merge later.
struct LogSumPart {
  float largest = 0.0F;
  float sum = 0.0F;
};

// out = H·x of core/hadamard.h, over order · power values, in three different places.
struct HadamardTask {
  const int8_t* signs = nullptr;  // [order][order]
  int order = 1, power = 1;
  const float* x = nullptr;
  float* scratch = nullptr;
  float* out = nullptr;
};

struct FloatKernels {
  // out = x / sqrt(mean(x²) + epsilon) · weight, over `size` values, a multiple of 16.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int size, float* out);

  // Rotary embedding of eight adjacent pairs: (a, b) -> (a·cos − b·sin, a·sin + b·cos).
  void (*rotate)(const float* x, const float* cosine, const float* sine, float* out);

  // Sixteen values, rounded to f16.
  void (*round_to_f16)(const float* x, uint16_t* out);

  // out = silu(gate) · up. Blocks of 16 gate values alternate with blocks of 16 up values.
  void (*silu_product)(const float* gate_up, int blocks, float* out);

  // Adds `size` logits, of the tokens from `first_token` on, to a list.
  void (*add_to_top)(const float* logits, int size, int32_t first_token, TopList& top);

  void (*hadamard)(const HadamardTask& task);

  LogSumPart (*log_sum_part)(const float* logits, int size);

  void (*attend)(const AttentionTask& task);
};

// The functions for "avx512", "avx2" or "scalar"; the processor must have that instruction set.
const FloatKernels& float_kernels(const std::string& isa);

}  // namespace specquant::cpu
