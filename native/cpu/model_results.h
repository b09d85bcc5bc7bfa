// What a forward leaves behind for its logit rows: best tokens, log-sums, whole rows of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/elementwise.h"
#include "decode/device.h"

namespace specquant::cpu {

// The head is handed out in stretches of this many rows. Log-sums are taken for each
// stretch and merged in order, so that they do not depend on which thread took which.
constexpr int kVocabularyStretch = 256;

class LogitResults {
 public:
  LogitResults() = default;
  // `entries` logits a row. Entry i is token i, or draft_tokens[i], which rise and outlive this
  // object.
  LogitResults(const FloatKernels& kernels, int entries, std::span<const int32_t> draft_tokens,
               int threads);

  // Makes room for `rows` rows; earlier results are gone.
  void start(std::size_t rows, const Want& want);
  // Takes the logits of one stretch, of one row. Threads, each with its own index, may call it at
  // the same time.
  void take(int thread, std::size_t row, int stretch, const float* logits, int size);
  // Merges what the threads took.
  void finish();

  std::span<const TopEntry> top(std::size_t row) const;
  float log_sum(std::size_t row) const;
  std::span<const float> logits(std::size_t row) const;

 private:
  TopList& list(int thread, std::size_t row) {
    return lists_[static_cast<std::size_t>(thread) * rows_ + row];
  }
  void merge_top(std::size_t row);
  void merge_log_sum(std::size_t row);
  void check(std::size_t row, bool wanted, const char* what) const;

  const FloatKernels* kernels_ = nullptr;
  int row_entries_ = 0, stretches_ = 0, threads_ = 1;
  std::span<const int32_t> draft_tokens_;
  std::size_t rows_ = 0, top_k_ = 0;
  Want want_;
  std::vector<TopList> lists_;     // [thread][row]
  std::vector<TopEntry> entries_;  // [thread][row][top_k]
  std::vector<TopEntry> top_;      // [row][top_k]
  std::vector<LogSumPart> parts_;  // [row][stretch]
  std::vector<float> log_sums_;    // [row]
  std::vector<float> logits_;      // [row][entry]
};

}  // namespace specquant::cpu
