// Teacher-forced scoring of given tokens: what a precision predicts, and how far from a reference.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/device.h"

namespace specquant::decode {

// Columns; entry i speaks of the prediction made after token i, for token i + 1. The last four are
// empty without a reference. Logarithms are natural; kl is reference || precision.
struct ScoredSequence {
  std::vector<int32_t> top1;
  std::vector<double> top1_logprob, logprob;
  std::vector<int32_t> ref_top1;
  std::vector<double> ref_logprob, margin, kl;
};

// `max_batch` is the model's number of slots. All tokens but the last must fit its cache.
ScoredSequence score(Model& model, int max_batch, Precision precision,
                     std::optional<Precision> reference, std::span<const int32_t> tokens);

}  // namespace specquant::decode
