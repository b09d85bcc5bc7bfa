// Prompt lookup: the tokens that followed the most recent earlier occurrence of the longest
// possible n-gram at the end of prompt and output.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "decode/drafter.h"

namespace specquant::decode {

// Where each n-gram of a growing sequence last ended. An n-gram is entered once a token follows it,
// so that the end of the sequence never finds itself.
class NgramIndex {
 public:
  NgramIndex(int min_ngram, int max_ngram);
  void clear();
  // Index of the token after the latest earlier occurrence of the longest n-gram that ends
  // `tokens`, or -1. `tokens` must extend those of the call before.
  int find(std::span<const int32_t> tokens);
  // Forgets all but the first `length` tokens.
  void rewind(int length);

 private:
  int min_ngram_;
  std::vector<std::unordered_map<uint64_t, int>> next_;  // by n − min: hash -> index of next token
  int entered_ = 0;  // n-grams that end before this index are in
  struct Overwritten {
    int end = 0;  // index of the last token of the n-gram that did it
    std::size_t map = 0;
    uint64_t hash = 0;
    int before = 0;  // -1: nothing
  };
  std::deque<Overwritten> overwritten_;  // the latest, for rewind()
  void enter(std::span<const int32_t> tokens);
};

class NgramDrafter : public Drafter {
 public:
  NgramDrafter(int min_ngram, int max_ngram, int slots);

  void begin(int slot, std::span<const int32_t> prompt, std::span<const float> features) override;
  void propose(std::span<const Draftable> sequences, const Drafting& drafting,
               std::span<Proposal> proposals) override;
  void verified(int slot, std::span<const int> path) override;
  void rewind(int slot, int length) override;

 private:
  std::vector<NgramIndex> indices_;  // by slot
};

}  // namespace specquant::decode
