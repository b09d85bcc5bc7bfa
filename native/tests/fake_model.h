// A deterministic Model without weights, for tests of what stands above the device interface.
//
// Each cache entry remembers what its root path was and which precision wrote it. The logits of a
// row are a hash of the tokens it sees; entries that are stale, misplaced or written at another
// precision change the target's logits, so that wrong cache handling shows as wrong tokens.
#pragma once

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>
#include <vector>

#include "decode/device.h"

namespace specquant::test {

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t hash = (a ^ (b + 0x9e3779b97f4a7c15U)) * 0xff51afd7ed558ccdU;
  hash = (hash ^ (hash >> 29)) * 0xc4ceb9fe1a85ec53U;
  return hash ^ (hash >> 32);
}

struct FakeOptions {
  int vocabulary = 13;
  int max_batch = 8;
  int max_context = 128;
  int order = 0;              // tokens that the next one depends on; 0: all
  double disagreement = 0.3;  // share of rows where another precision than fp16 draws other logits
};

class FakeModel : public Model {
 public:
  explicit FakeModel(const FakeOptions& options = {}) : options_(options) {
    shape_.vocabulary = options.vocabulary;
    shape_.max_position = options.max_context;
    cache_.assign(static_cast<std::size_t>(options.max_batch),
                  std::vector<Entry>(static_cast<std::size_t>(options.max_context)));
  }

  const ModelShape& shape() const override { return shape_; }
  MemoryUse memory() const override { return {{{"fake", 1000}}, 2000}; }
  Proof proof(Precision precision) const override {
    return {{std::string("fake_") + name_of(precision)}, 1000, "integers"};
  }

  void forward(Precision precision, std::span<const Rows> batch, const Want& want) override {
    validate(batch, options_.max_batch, options_.max_context, options_.vocabulary);
    ++forwards;
    rows_of_last_forward = 0;
    logits_.clear();
    want_ = want;
    for (const Rows& rows : batch) {
      rows_of_last_forward += static_cast<int>(rows.tokens.size());
      for (std::size_t i = 0; i < rows.tokens.size(); ++i) {
        const std::vector<Entry> seen = write(precision, rows, i);
        const bool last = i + 1 == rows.tokens.size();
        if (want.rows == LogitRows::all || (want.rows == LogitRows::last && last)) {
          logits_.push_back(logits_after(precision, seen));
        }
      }
    }
    top_.assign(logits_.size(), {});
    for (std::size_t row = 0; row < logits_.size(); ++row) {
      std::vector<TopEntry>& top = top_[row];
      for (std::size_t i = 0; i < logits_[row].size(); ++i) {
        top.push_back({static_cast<int32_t>(i), logits_[row][i]});
      }
      std::ranges::stable_sort(top, std::greater<>(), &TopEntry::logit);
      top.resize(std::min(top.size(), static_cast<std::size_t>(want.top_k)));
    }
  }

  std::span<const TopEntry> top(std::size_t row) const override { return top_.at(row); }
  float log_sum(std::size_t) const override { throw std::logic_error("not asked for"); }
  std::span<const float> logits(std::size_t row) const override {
    if (!want_.logits) throw std::logic_error("logits were not asked for");
    return logits_.at(row);
  }

  void compact(int slot, int base, std::span<const int> path) override {
    std::vector<Entry>& entries = cache_.at(static_cast<std::size_t>(slot));
    for (std::size_t i = 0; i < path.size(); ++i) {
      entries.at(static_cast<std::size_t>(base) + i) =
          entries.at(static_cast<std::size_t>(base + path[i]));
    }
    ++compactions;
  }
  std::shared_ptr<const void> save(int slot, int length) const override {
    const auto& entries = cache_.at(static_cast<std::size_t>(slot));
    return std::make_shared<std::vector<Entry>>(entries.begin(), entries.begin() + length);
  }
  void restore(int slot, const std::shared_ptr<const void>& saved) override {
    const auto& entries = *std::static_pointer_cast<const std::vector<Entry>>(saved);
    std::ranges::copy(entries, cache_.at(static_cast<std::size_t>(slot)).begin());
    ++restores;
  }

  int forwards = 0, compactions = 0, restores = 0, rows_of_last_forward = 0;

 private:
  struct Entry {
    int32_t token = -1;
    uint64_t path = 0;  // hash of the root path up to and with this token
    Precision precision = Precision::fp16;
  };

  // Writes row i of a sequence and returns what it sees, root first.
  std::vector<Entry> write(Precision precision, const Rows& rows, std::size_t i) {
    std::vector<Entry>& entries = cache_[static_cast<std::size_t>(rows.slot)];
    std::vector<Entry> seen(entries.begin(), entries.begin() + rows.base);
    for (std::size_t j = 0; j < i; ++j) {
      if (rows.ancestors.empty() || ((rows.ancestors[i] >> j) & 1) != 0) {
        seen.push_back(entries[static_cast<std::size_t>(rows.base) + j]);
      }
    }
    Entry entry{rows.tokens[i], 0, precision};
    entry.path = mix(seen.empty() ? 0 : seen.back().path, static_cast<uint64_t>(entry.token));
    entries[static_cast<std::size_t>(rows.base) + i] = entry;
    seen.push_back(entry);
    return seen;
  }

  std::vector<float> logits_after(Precision precision, const std::vector<Entry>& seen) const {
    uint64_t path = 0;
    uint64_t seed = 0;
    uint64_t taint = 0;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      path = mix(path, static_cast<uint64_t>(seen[i].token));
      // An entry computed after another prefix than the one that is seen, or at another precision.
      if (seen[i].path != path) taint = mix(taint, i + 1);
      if (precision == Precision::fp16 && seen[i].precision != precision) taint = mix(taint, 2 * i);
      const bool counts =
          options_.order == 0 || i + static_cast<std::size_t>(options_.order) >= seen.size();
      if (counts) seed = mix(seed, static_cast<uint64_t>(seen[i].token));
    }
    seed = mix(seed, taint);
    if (precision != Precision::fp16) {
      const uint64_t draw = mix(seed, 77 + static_cast<uint64_t>(precision));
      if (static_cast<double>(draw % 1000) < options_.disagreement * 1000) seed = draw;
    }
    std::vector<float> logits;
    for (int token = 0; token < options_.vocabulary; ++token) {
      // Few distinct values, so that ties occur.
      logits.push_back(static_cast<float>(mix(seed, static_cast<uint64_t>(token) + 1) % 64) / 8.0F);
    }
    return logits;
  }

  FakeOptions options_;
  ModelShape shape_;
  std::vector<std::vector<Entry>> cache_;
  Want want_;
  std::vector<std::vector<float>> logits_;
  std::vector<std::vector<TopEntry>> top_;
};

}  // namespace specquant::test
