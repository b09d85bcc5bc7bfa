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

// Computes the cache entries of `tokens` in `slot` and returns what follows the last one. Chunk
// boundaries depend on positions alone, so that every method with this precision starts from the
// same cache.
TargetRow prefill(Model& model, Precision precision, int slot, std::span<const int32_t> tokens,
                  const Want& want);

// A prompt that was prefilled and timed once.
struct HeldPrompt {
  std::shared_ptr<const void> cache;
  TargetRow row;  // after the last token
  double seconds = 0.0;
};

// Prompts held by target precision and tokens, for as long as the model is.
class PrefillCache {
 public:
  // Null where it is not held, or without what `want` asks for.
  const HeldPrompt* find(Precision precision, const std::vector<int32_t>& tokens,
                         const Want& want) const;
  void hold(Precision precision, const std::vector<int32_t>& tokens, HeldPrompt prompt);
  void clear() { held_.clear(); }

 private:
  std::map<std::pair<Precision, std::vector<int32_t>>, HeldPrompt> held_;
};

}  // namespace specquant::decode
