#include "decode/score.h"

#include <algorithm>
#include <memory>

#include "decode/distribution.h"

namespace specquant::decode {
namespace {

constexpr std::size_t kChunk = 64;  // rows of a forward, all with their logits
constexpr Want kAllLogits{.rows = LogitRows::all, .top_k = 1, .logits = true};

// A pass of one precision over the sequence, chunk by chunk, in a slot that it may share with the
// other pass: then its cache is put aside while the other runs.
class Pass {
 public:
  Pass(Model& model, Precision precision, int slot, bool shares_slot)
      : model_(model), precision_(precision), slot_(slot), shares_slot_(shares_slot) {}

  void forward(std::size_t base, std::span<const int32_t> tokens) {
    if (aside_) model_.restore(slot_, aside_);
    const Rows rows{.slot = slot_, .base = static_cast<int>(base), .tokens = tokens};
    model_.forward(precision_, std::span(&rows, 1), kAllLogits);
    if (shares_slot_) aside_ = model_.save(slot_, static_cast<int>(base + tokens.size()));
  }

 private:
  Model& model_;
  Precision precision_;
  int slot_;
  bool shares_slot_;
  std::shared_ptr<const void> aside_;
};

}  // namespace

ScoredSequence score(Model& model, int max_batch, Precision precision,
                     std::optional<Precision> reference, std::span<const int32_t> tokens) {
  ScoredSequence columns;
  const bool one_slot = max_batch == 1 && reference.has_value();
  Pass scored(model, precision, 0, one_slot);
  Pass compared(model, reference.value_or(precision), one_slot ? 0 : 1, one_slot);
  const auto vocabulary = static_cast<std::size_t>(model.shape().vocabulary);
  std::vector<float> held;  // the scored pass's logits of a chunk, while the reference runs
  const std::size_t predictions = tokens.empty() ? 0 : tokens.size() - 1;
  for (std::size_t begin = 0; begin < predictions; begin += kChunk) {
    const std::size_t count = std::min(kChunk, predictions - begin);
    scored.forward(begin, tokens.subspan(begin, count));
    held.clear();
    for (std::size_t row = 0; row < count; ++row) {
      const auto logits = model.logits(row);
      held.insert(held.end(), logits.begin(), logits.end());
    }
    if (reference) compared.forward(begin, tokens.subspan(begin, count));
    for (std::size_t row = 0; row < count; ++row) {
      const int32_t given = tokens[begin + row + 1];
      const Distribution own(std::span<const float>(held).subspan(row * vocabulary, vocabulary));
      columns.top1.push_back(own.top());
      columns.top1_logprob.push_back(own.log_probability(own.top()));
      columns.logprob.push_back(own.log_probability(given));
      if (!reference) continue;
      const Distribution other(model.logits(row));
      columns.ref_top1.push_back(other.top());
      columns.ref_logprob.push_back(other.log_probability(given));
      columns.margin.push_back(other.margin());
      columns.kl.push_back(other.divergence(own));
    }
  }
  return columns;
}

}  // namespace specquant::decode
