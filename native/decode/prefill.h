// Prefill of a prompt, and prompts held for later runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "decode/acceptance.h"
#include "decode/device.h"

namespace specquant::decode {

struct Prefilled {
  TargetRow row;                // what follows the last token; empty with LogitRows::none
  std::vector<float> features;  // the wanted taps of every token
};

// Computes the cache entries of `tokens` in `slot`, which may be none. `features` are the input of
// a draft head, one row a token. Chunk boundaries depend on positions alone, so that every method
// with this precision starts from the same cache.
Prefilled prefill(Model& model, Precision precision, int slot, std::span<const int32_t> tokens,
                  const Want& want, std::span<const float> features = {});

// A prompt that was prefilled and timed once.
struct HeldPrompt {
  std::shared_ptr<const void> cache;
  TargetRow row;                                            // after the last token
  std::map<std::vector<int>, std::vector<float>> features;  // of every token, by their taps
  double seconds = 0.0;

  // Null where these are not held.
  const std::vector<float>* find_features(std::span<const int> taps) const;
};

// Prompts held by target precision and tokens, for as long as the model is.
class PrefillCache {
 public:
  // Null where it is not held, or without what `want` asks for, its taps included.
  const HeldPrompt* find(Precision precision, const std::vector<int32_t>& tokens,
                         const Want& want) const;
  // Features of other taps that were held for this prompt stay.
  void hold(Precision precision, const std::vector<int32_t>& tokens, HeldPrompt prompt);
  void clear() { held_.clear(); }

 private:
  std::map<std::pair<Precision, std::vector<int32_t>>, HeldPrompt> held_;
};

}  // namespace specquant::decode
