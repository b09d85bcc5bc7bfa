#include "cpu/model_results.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace specquant::cpu {
namespace {

template <typename T>
void grow(std::vector<T>& values, std::size_t size) {
  if (values.size() < size) values.resize(size);
}

}  // namespace

LogitResults::LogitResults(const FloatKernels& kernels, int entries,
                           std::span<const int32_t> draft_tokens, int threads)
    : kernels_(&kernels),
      row_entries_(entries),
      stretches_((entries + kVocabularyStretch - 1) / kVocabularyStretch),
      threads_(threads),
      draft_tokens_(draft_tokens) {}

void LogitResults::start(std::size_t rows, const Want& want) {
  rows_ = rows;
  want_ = want;
  top_k_ = static_cast<std::size_t>(want.top_k);
  grow(lists_, rows * threads_);
  grow(entries_, rows * threads_ * top_k_);
  grow(top_, rows * top_k_);
  for (std::size_t i = 0; i < rows * threads_; ++i) {
    lists_[i] = {entries_.data() + i * top_k_, want.top_k, 0};
  }
  if (want.log_sum) {
    grow(parts_, rows * stretches_);
    grow(log_sums_, rows);
  }
  if (want.logits) grow(logits_, rows * row_entries_);
}

void LogitResults::take(int thread, std::size_t row, int stretch, const float* logits, int size) {
  const int first = stretch * kVocabularyStretch;
  kernels_->add_to_top(logits, size, first, list(thread, row));
  if (want_.log_sum) parts_[row * stretches_ + stretch] = kernels_->log_sum_part(logits, size);
  if (want_.logits) std::copy(logits, logits + size, logits_.data() + row * row_entries_ + first);
}

void LogitResults::finish() {
  for (std::size_t row = 0; row < rows_; ++row) {
    merge_top(row);
    if (want_.log_sum) merge_log_sum(row);
  }
}

void LogitResults::merge_top(std::size_t row) {
  TopEntry* out = top_.data() + row * top_k_;
  std::size_t kept = 0;
  const auto better = [](const TopEntry& a, const TopEntry& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  };
  for (int thread = 0; thread < threads_; ++thread) {
    const TopList& from = list(thread, row);
    for (int i = 0; i < from.count; ++i) {
      const TopEntry entry = from.entries[i];
      if (kept == top_k_ && !better(entry, out[kept - 1])) break;
      if (kept < top_k_) ++kept;
      std::size_t place = kept - 1;
      for (; place > 0 && better(entry, out[place - 1]); --place) out[place] = out[place - 1];
      out[place] = entry;
    }
  }
  if (draft_tokens_.empty()) return;
  for (std::size_t i = 0; i < kept; ++i) {
    out[i].token = draft_tokens_[static_cast<std::size_t>(out[i].token)];
  }
}

void LogitResults::merge_log_sum(std::size_t row) {
  const LogSumPart* parts = parts_.data() + row * stretches_;
  float largest = parts[0].largest;
  for (int i = 1; i < stretches_; ++i) largest = std::max(largest, parts[i].largest);
  double total = 0.0;
  for (int i = 0; i < stretches_; ++i) {
    total += static_cast<double>(parts[i].sum) *
             std::exp(static_cast<double>(parts[i].largest) - static_cast<double>(largest));
  }
  log_sums_[row] = static_cast<float>(static_cast<double>(largest) + std::log(total));
}

void LogitResults::check(std::size_t row, bool wanted, const char* what) const {
  if (!wanted) {
    throw std::out_of_range("The last forward was not asked for " + std::string(what) + ".");
  }
  if (row >= rows_) {
    throw std::out_of_range("Logit row " + std::to_string(row) + " of " + std::to_string(rows_) +
                            " does not exist.");
  }
}

std::span<const TopEntry> LogitResults::top(std::size_t row) const {
  check(row, top_k_ > 0, "the best tokens");
  return {top_.data() + row * top_k_, top_k_};
}

float LogitResults::log_sum(std::size_t row) const {
  check(row, want_.log_sum, "log-sums");
  return log_sums_[row];
}

std::span<const float> LogitResults::logits(std::size_t row) const {
  check(row, want_.logits, "whole rows of logits");
  return {logits_.data() + row * row_entries_, static_cast<std::size_t>(row_entries_)};
}

}  // namespace specquant::cpu
