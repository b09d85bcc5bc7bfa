#include "decode/prefill.h"

#include <algorithm>

namespace specquant::decode {
namespace {

constexpr std::size_t kChunk = 256;  // rows of a forward: enough to use the device, bounded buffers

}  // namespace

Prefilled prefill(Model& model, Precision precision, int slot, std::span<const int32_t> tokens,
                  const Want& want, std::span<const float> features) {
  Prefilled result;
  const bool no_row = want.rows == LogitRows::none;
  Want last = want;
  last.rows = no_row ? LogitRows::none : LogitRows::last;
  const Want nothing{.rows = LogitRows::none, .top_k = 0, .taps = want.taps};
  const std::size_t width = tokens.empty() ? 0 : features.size() / tokens.size();
  for (std::size_t begin = 0; begin < tokens.size(); begin += kChunk) {
    const std::size_t count = std::min(kChunk, tokens.size() - begin);
    const Rows rows{.slot = slot,
                    .base = static_cast<int>(begin),
                    .tokens = tokens.subspan(begin, count),
                    .features = features.subspan(begin * width, count * width)};
    model.forward(precision, std::span(&rows, 1), begin + count == tokens.size() ? last : nothing);
    if (want.taps.empty()) continue;
    for (std::size_t row = 0; row < count; ++row) {
      const auto seen = model.features(row);
      result.features.insert(result.features.end(), seen.begin(), seen.end());
    }
  }
  if (!no_row) result.row = TargetRow::copy_of(model, 0, last);
  return result;
}

const std::vector<float>* HeldPrompt::find_features(std::span<const int> taps) const {
  const auto found = features.find({taps.begin(), taps.end()});
  return found == features.end() ? nullptr : &found->second;
}

const HeldPrompt* PrefillCache::find(Precision precision, const std::vector<int32_t>& tokens,
                                     const Want& want) const {
  const auto found = held_.find({precision, tokens});
  if (found == held_.end() || !found->second.row.serves(want)) return nullptr;
  if (!want.taps.empty() && found->second.find_features(want.taps) == nullptr) return nullptr;
  return &found->second;
}

void PrefillCache::hold(Precision precision, const std::vector<int32_t>& tokens,
                        HeldPrompt prompt) {
  HeldPrompt& held = held_[{precision, tokens}];
  prompt.features.merge(held.features);
  held = std::move(prompt);
}

}  // namespace specquant::decode
