#include "cuda/model_results.h"

#include <algorithm>
#include <stdexcept>

#include "cuda/step.h"

namespace specquant::cuda {
namespace {

constexpr std::size_t kFloats = kPassRows * sizeof(float);
constexpr const char* kWhat = "buffers";

}  // namespace

ModelResults::ModelResults(int entries, std::vector<int32_t> draft_tokens)
    : row_entries_(entries),
      draft_tokens_(std::move(draft_tokens)),
      device_logits_(kFloats * entries, kWhat),
      entries_(std::size_t{kPassRows} * kLogitChunks * kDeviceTopK * sizeof(TopEntry), kWhat),
      sums_(std::size_t{kPassRows} * kLogitChunks * sizeof(LogitSum), kWhat),
      top_device_(std::size_t{kPassRows} * kDeviceTopK * sizeof(TopEntry), kWhat),
      log_sums_device_(kFloats, kWhat),
      top_host_(top_device_.bytes()),
      log_sums_host_(kFloats) {}

void ModelResults::start(std::size_t rows, const Want& want) {
  rows_ = rows;
  want_ = want;
  want_.taps = {};
  top_.resize(rows * static_cast<std::size_t>(want.top_k));
  log_sums_.resize(want.log_sum ? rows : 0);
  logits_.resize(want.logits ? rows * static_cast<std::size_t>(row_entries_) : 0);
}

void ModelResults::take(int first, int count, cudaStream_t stream, DeviceTime* time) {
  const Want& want = want_;
  const auto entries_of_row = static_cast<std::size_t>(row_entries_);
  const int k = std::min(want.top_k, kDeviceTopK);
  check(launch_results(device_logits_.as<float>(), count, row_entries_, k, entries_.as<TopEntry>(),
                       want.log_sum ? sums_.as<LogitSum>() : nullptr, top_device_.as<TopEntry>(),
                       log_sums_device_.as<float>(), stream),
        "the choice of tokens");
  const char* what = "reading results";
  const std::size_t entries = static_cast<std::size_t>(count) * k;
  check(cudaMemcpyAsync(top_host_.as<void>(), top_device_.as<void>(), entries * sizeof(TopEntry),
                        cudaMemcpyDeviceToHost, stream),
        what);
  if (want.log_sum) {
    check(cudaMemcpyAsync(log_sums_host_.as<void>(), log_sums_device_.as<void>(),
                          count * sizeof(float), cudaMemcpyDeviceToHost, stream),
          what);
  }
  // More entries than the device picks are picked here, from the whole rows.
  const bool here = want.top_k > kDeviceTopK;
  std::vector<float> whole;
  if (want.logits || here) {
    whole.resize(count * entries_of_row);
    check(cudaMemcpyAsync(whole.data(), device_logits_.as<void>(), whole.size() * sizeof(float),
                          cudaMemcpyDeviceToHost, stream),
          what);
  }
  if (time != nullptr) time->end(stream);
  check(cudaStreamSynchronize(stream), "a forward pass");
  if (time != nullptr) time->add();
  const auto at = static_cast<std::size_t>(first);
  if (want.logits) std::ranges::copy(whole, logits_.begin() + at * entries_of_row);
  if (want.log_sum) std::copy_n(log_sums_host_.as<float>(), count, log_sums_.begin() + at);
  if (here) {
    pick(whole, at, count);
  } else {
    std::copy_n(top_host_.as<TopEntry>(), entries, top_.begin() + at * k);
  }
  if (draft_tokens_.empty()) return;
  for (std::size_t i = 0; i < count * static_cast<std::size_t>(want.top_k); ++i) {
    int32_t& token = top_[at * want.top_k + i].token;
    token = draft_tokens_[static_cast<std::size_t>(token)];
  }
}

// The best entries of whole rows, which are `first` ... of the forward.
void ModelResults::pick(const std::vector<float>& whole, std::size_t first, int count) {
  const auto entries_of_row = static_cast<std::size_t>(row_entries_);
  std::vector<TopEntry> row(entries_of_row);
  for (int i = 0; i < count; ++i) {
    for (std::size_t token = 0; token < entries_of_row; ++token) {
      row[token] = {static_cast<int32_t>(token), whole[i * entries_of_row + token]};
    }
    const auto before = [](const TopEntry& a, const TopEntry& b) {
      return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
    };
    std::partial_sort_copy(row.begin(), row.end(), top_.begin() + (first + i) * want_.top_k,
                           top_.begin() + (first + i + 1) * want_.top_k, before);
  }
}

std::span<const TopEntry> ModelResults::top(std::size_t row) const {
  if (row >= rows_) throw std::invalid_argument("The last forward left no such logit row.");
  return std::span(top_).subspan(row * want_.top_k, want_.top_k);
}
float ModelResults::log_sum(std::size_t row) const {
  if (row >= log_sums_.size())
    throw std::invalid_argument("The last forward left no such log-sum.");
  return log_sums_[row];
}
std::span<const float> ModelResults::logits(std::size_t row) const {
  if (!want_.logits || row >= rows_) {
    throw std::invalid_argument("The last forward left no such row of logits.");
  }
  return std::span(logits_).subspan(row * row_entries_, row_entries_);
}

}  // namespace specquant::cuda
