#include "decode/ngram_drafter.h"

#include <algorithm>

namespace specquant::decode {
namespace {

uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = 0x9e3779b97f4a7c15U;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xff51afd7ed558ccdU;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

NgramIndex::NgramIndex(int min_ngram, int max_ngram)
    : min_ngram_(min_ngram), next_(static_cast<std::size_t>(max_ngram - min_ngram + 1)) {}

void NgramIndex::clear() {
  for (auto& map : next_) map.clear();
  entered_ = 0;
  overwritten_.clear();
}

void NgramIndex::enter(std::span<const int32_t> tokens) {
  for (; entered_ + 1 < static_cast<int>(tokens.size()); ++entered_) {
    for (std::size_t i = 0; i < next_.size(); ++i) {
      const std::size_t n = static_cast<std::size_t>(min_ngram_) + i;
      const std::size_t end = static_cast<std::size_t>(entered_) + 1;
      if (n > end) continue;
      const uint64_t hash = hash_of(tokens.subspan(end - n, n));
      const auto [place, fresh] = next_[i].try_emplace(hash, entered_ + 1);
      overwritten_.push_back({entered_, i, hash, fresh ? -1 : place->second});
      place->second = entered_ + 1;
    }
    while (!overwritten_.empty() && overwritten_.front().end < entered_ - kMaxDrafted)
      overwritten_.pop_front();
  }
}

void NgramIndex::rewind(int length) {
  while (!overwritten_.empty() && overwritten_.back().end + 1 >= length) {
    const Overwritten& last = overwritten_.back();
    if (last.before < 0) {
      next_[last.map].erase(last.hash);
    } else {
      next_[last.map][last.hash] = last.before;
    }
    overwritten_.pop_back();
  }
  entered_ = std::min(entered_, length - 1);
}

int NgramIndex::find(std::span<const int32_t> tokens) {
  enter(tokens);
  for (std::size_t i = next_.size(); i-- > 0;) {
    const std::size_t n = static_cast<std::size_t>(min_ngram_) + i;
    if (n >= tokens.size()) continue;
    const std::span<const int32_t> suffix = tokens.last(n);
    const auto found = next_[i].find(hash_of(suffix));
    if (found == next_[i].end()) continue;
    const std::size_t next = static_cast<std::size_t>(found->second);
    // Two n-grams may share a hash.
    if (std::ranges::equal(tokens.subspan(next - n, n), suffix)) return found->second;
  }
  return -1;
}

NgramDrafter::NgramDrafter(int min_ngram, int max_ngram, int slots)
    : indices_(static_cast<std::size_t>(slots), NgramIndex(min_ngram, max_ngram)) {}

void NgramDrafter::begin(int slot, std::span<const int32_t>, std::span<const float>) {
  indices_[static_cast<std::size_t>(slot)].clear();
}

void NgramDrafter::verified(int, std::span<const int>) {}

void NgramDrafter::rewind(int slot, int length) {
  indices_[static_cast<std::size_t>(slot)].rewind(length);
}

void NgramDrafter::propose(std::span<const Draftable> sequences, const Drafting& drafting,
                           std::span<Proposal> proposals) {
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Draftable& sequence = sequences[i];
    const int next = indices_[static_cast<std::size_t>(sequence.slot)].find(sequence.tokens);
    if (next < 0) continue;
    const int known = static_cast<int>(sequence.tokens.size()) - next;
    const int count = std::min({known, sequence.depth, drafting.shape.depth});
    for (int row = 0; row < count; ++row) {
      proposals[i].add(sequence.tokens[static_cast<std::size_t>(next + row)], row);
    }
  }
}

}  // namespace specquant::decode
