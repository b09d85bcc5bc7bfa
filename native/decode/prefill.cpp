#include "decode/prefill.h"

#include <algorithm>

namespace specquant::decode {
namespace {

constexpr std::size_t kChunk = 256;  // rows of a forward: enough to use the device, bounded buffers

}  // namespace

TargetRow prefill(Model& model, Precision precision, int slot, std::span<const int32_t> tokens,
                  const Want& want) {
  Want last = want;
  last.rows = LogitRows::last;
  const Want nothing{.rows = LogitRows::none, .top_k = 0};
  for (std::size_t begin = 0; begin < tokens.size(); begin += kChunk) {
    const std::size_t count = std::min(kChunk, tokens.size() - begin);
    const Rows rows{
        .slot = slot, .base = static_cast<int>(begin), .tokens = tokens.subspan(begin, count)};
    model.forward(precision, std::span(&rows, 1), begin + count == tokens.size() ? last : nothing);
  }
  return TargetRow::copy_of(model, 0, last);
}

const HeldPrompt* PrefillCache::find(Precision precision, const std::vector<int32_t>& tokens,
                                     const Want& want) const {
  const auto found = held_.find({precision, tokens});
  if (found == held_.end() || !found->second.row.serves(want)) return nullptr;
  return &found->second;
}

void PrefillCache::hold(Precision precision, const std::vector<int32_t>& tokens,
                        HeldPrompt prompt) {
  held_[{precision, tokens}] = std::move(prompt);
}

}  // namespace specquant::decode
