// Logits on the device, and what the caller of a forward reads of them.
#pragma once

#include <span>
#include <vector>

#include "cuda/device_time.h"
#include "cuda/memory.h"
#include "cuda/results.h"
#include "decode/device.h"

namespace specquant::cuda {

class ModelResults {
 public:
  // `draft_tokens` is the token of each entry of a row, rising; empty where entry i is token i.
  ModelResults(int entries, std::vector<int32_t> draft_tokens);

  std::span<const int32_t> draft_tokens() const { return draft_tokens_; }

  float* device_logits() const { return device_logits_.as<float>(); }  // of a pass

  // A forward with `rows` logit rows begins.
  void start(std::size_t rows, const Want& want);
  // Takes the logits of a pass, which are rows `first` ... of the forward. Returns when they are
  // here. `time`, which may be null, ends with them.
  void take(int first, int count, cudaStream_t stream, DeviceTime* time);

  // As Model's.
  std::span<const TopEntry> top(std::size_t row) const;
  float log_sum(std::size_t row) const;
  std::span<const float> logits(std::size_t row) const;

 private:
  const int row_entries_;
  const std::vector<int32_t> draft_tokens_;
  DeviceBuffer device_logits_, entries_, sums_, top_device_, log_sums_device_;
  PinnedBuffer top_host_, log_sums_host_;

  void pick(const std::vector<float>& whole, std::size_t first, int count);

  Want want_;
  std::vector<TopEntry> top_;
  std::vector<float> log_sums_, logits_;
  std::size_t rows_ = 0;
};

}  // namespace specquant::cuda
