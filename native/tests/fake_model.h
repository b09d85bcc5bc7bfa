// A deterministic Model without weights, for tests of what stands above the device interface.
//
// Each cache entry remembers what its root path was and which precision wrote it. The logits of a
// row are a hash of the tokens it sees; entries that are stale, misplaced or written at another
// precision change the target's logits, so that wrong cache handling shows as wrong tokens.
//
// A feature is the hash of a row's root path. A head gets the path of its logits from the feature
// that it is given, and counts those that are not what its token follows.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <tuple>
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
  int order = 0;               // tokens that the next one depends on; 0: all
  double disagreement = 0.3;   // share of rows where another precision than fp16 draws other logits
  std::vector<int> taps = {};  // of a head: what it reads of its target
  int reduced = 0;             // entries of a reduced vocabulary; 0: whole
};

constexpr int kFakeLayers = 3, kFakeHidden = 4;

// A hash as four floats of sixteen bits each, and back.
inline void add_feature(std::vector<float>& features, uint64_t hash) {
  for (int part = 0; part < kFakeHidden; ++part) {
    features.push_back(static_cast<float>((hash >> (16 * part)) & 0xffff));
  }
}
inline uint64_t hash_of(std::span<const float> feature) {
  uint64_t hash = 0;
  for (std::size_t part = 0; part < kFakeHidden; ++part) {
    hash |= static_cast<uint64_t>(feature[part]) << (16 * part);
  }
  return hash;
}

class FakeModel : public Model {
 public:
  explicit FakeModel(const FakeOptions& options = {}) : options_(options) {
    shape_.vocabulary = options.vocabulary;
    shape_.max_position = options.max_context;
    shape_.layers = kFakeLayers;
    shape_.hidden = kFakeHidden;
    shape_.feature_width = kFakeHidden * static_cast<int>(options.taps.size());
    for (int entry = 0; entry < options.reduced; ++entry) {
      draft_tokens_.push_back(entry * options.vocabulary / options.reduced);
    }
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
    features_.clear();
    want_ = want;
    taps_.assign(want.taps.begin(), want.taps.end());
    for (const Rows& rows : batch) {
      rows_of_last_forward += static_cast<int>(rows.tokens.size());
      for (std::size_t i = 0; i < rows.tokens.size(); ++i) {
        const std::vector<Entry> seen = write(precision, rows, i);
        features_.emplace_back();
        for (const int tap : taps_) add_feature(features_.back(), tapped(seen.back().path, tap));
        const bool last = i + 1 == rows.tokens.size();
        if (want.rows == LogitRows::all || (want.rows == LogitRows::last && last)) {
          logits_.push_back(reduced_to_own(logits_after(precision, seen)));
        }
      }
    }
    top_.assign(logits_.size(), {});
    for (std::size_t row = 0; row < logits_.size(); ++row) {
      std::vector<TopEntry>& top = top_[row];
      for (std::size_t i = 0; i < logits_[row].size(); ++i) {
        const auto entry = static_cast<int32_t>(i);
        top.push_back({draft_tokens_.empty() ? entry : draft_tokens_[i], logits_[row][i]});
      }
      std::ranges::stable_sort(top, std::greater<>(), &TopEntry::logit);
      top.resize(std::min(top.size(), static_cast<std::size_t>(want.top_k)));
    }
  }

  std::span<const TopEntry> top(std::size_t row) const override { return top_.at(row); }
  float log_sum(std::size_t row) const override {
    if (!want_.log_sum) throw std::logic_error("log_sum was not asked for");
    double sum = 0.0;
    for (const float logit : logits_.at(row)) sum += std::exp(static_cast<double>(logit));
    return static_cast<float>(std::log(sum));
  }
  std::span<const float> features(std::size_t row) const override { return features_.at(row); }
  std::span<const int32_t> draft_tokens() const override { return draft_tokens_; }
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

  // The cache of a slot: token, path and precision of each entry.
  using CachedEntry = std::tuple<int32_t, uint64_t, Precision>;
  std::vector<CachedEntry> cached(int slot, int length) const {
    std::vector<CachedEntry> entries;
    for (int i = 0; i < length; ++i) {
      const Entry& entry =
          cache_.at(static_cast<std::size_t>(slot)).at(static_cast<std::size_t>(i));
      entries.emplace_back(entry.token, entry.path, entry.precision);
    }
    return entries;
  }

  int forwards = 0, compactions = 0, restores = 0, rows_of_last_forward = 0;
  int misplaced = 0;  // entries that a row saw and that were computed after another path than its

 private:
  struct Entry {
    int32_t token = -1;
    uint64_t path = 0;  // hash of the root path up to and with this token
    Precision precision = Precision::fp16;
  };

  // Writes row i of a sequence and returns what it sees, root first.
  std::vector<Entry> write(Precision precision, const Rows& rows, std::size_t i) {
    std::vector<Entry>& entries = cache_[static_cast<std::size_t>(rows.slot)];
    const int trunk = trunk_of(rows);
    const std::size_t place = static_cast<std::size_t>(rows.base) + i;
    std::vector<Entry> seen(entries.begin(), entries.begin() + trunk);
    for (auto j = static_cast<std::size_t>(trunk); j < place; ++j) {
      const std::size_t bit = j - static_cast<std::size_t>(trunk);
      if (rows.ancestors.empty() || ((rows.ancestors[i] >> bit) & 1) != 0) {
        seen.push_back(entries[j]);
      }
    }
    Entry entry{rows.tokens[i], 0, precision};
    const uint64_t above = shape_.feature_width > 0 ? feature_path(rows, i)
                           : seen.empty()           ? 0
                                                    : seen.back().path;
    entry.path = mix(above, static_cast<uint64_t>(entry.token));
    entries[place] = entry;
    seen.push_back(entry);
    return seen;
  }

  std::vector<float> logits_after(Precision precision, const std::vector<Entry>& seen) {
    const bool head = shape_.feature_width > 0;
    uint64_t path = 0;
    uint64_t seed = 0;
    uint64_t taint = 0;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      // What stands before a head's first entry only its feature knows.
      path = head && i == 0 ? seen[i].path : mix(path, static_cast<uint64_t>(seen[i].token));
      // An entry computed after another prefix than the one that is seen, or at another precision.
      if (seen[i].path != path) {
        taint = mix(taint, i + 1);
        ++misplaced;
      }
      if (precision == Precision::fp16 && seen[i].precision != precision) taint = mix(taint, 2 * i);
      const bool counts =
          options_.order == 0 || i + static_cast<std::size_t>(options_.order) >= seen.size();
      if (counts) seed = mix(seed, static_cast<uint64_t>(seen[i].token));
    }
    if (head && options_.order == 0) seed = path;
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

  static uint64_t tapped(uint64_t path, int tap) {
    return path ^ mix(99, static_cast<uint64_t>(tap));
  }

  // The path that a head's row was given with its feature: its target's, of which every tap tells
  // the same, or its own.
  uint64_t feature_path(const Rows& rows, std::size_t i) const {
    const std::size_t width = rows.features.size() / rows.tokens.size();
    const auto feature = rows.features.subspan(i * width, width);
    if (width == kFakeHidden) return tapped(hash_of(feature), kFakeLayers);
    if (width != static_cast<std::size_t>(shape_.feature_width)) {
      throw std::invalid_argument("The features are neither the target's nor the head's own.");
    }
    uint64_t path = 0;
    for (std::size_t tap = 0; tap < options_.taps.size(); ++tap) {
      const auto part = feature.subspan(tap * kFakeHidden, kFakeHidden);
      const uint64_t told = tapped(hash_of(part), options_.taps[tap]);
      if (tap > 0 && told != path) throw std::invalid_argument("The taps are of several tokens.");
      path = told;
    }
    return path;
  }

  std::vector<float> reduced_to_own(std::vector<float> logits) const {
    if (draft_tokens_.empty()) return logits;
    std::vector<float> own;
    for (const int32_t token : draft_tokens_)
      own.push_back(logits[static_cast<std::size_t>(token)]);
    return own;
  }

  FakeOptions options_;
  ModelShape shape_;
  std::vector<int32_t> draft_tokens_;
  std::vector<int> taps_;
  std::vector<std::vector<float>> features_;
  std::vector<std::vector<Entry>> cache_;
  Want want_;
  std::vector<std::vector<float>> logits_;
  std::vector<std::vector<TopEntry>> top_;
};

}  // namespace specquant::test
