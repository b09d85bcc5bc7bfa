#include "decode/model_limits.h"

#include <stdexcept>
#include <string>

#include "core/errors.h"

namespace specquant {

ModelLimits::ModelLimits(const ModelShape& shape, int max_batch, int max_context)
    : shape_(shape), max_batch_(max_batch), max_context_(max_context) {
  if (max_batch < 1 || max_context < 1) {
    throw core::Error(core::ErrorType::bad_request,
                      "max_batch and max_context must be at least 1.");
  }
}

void ModelLimits::check_forward(std::span<const Rows> batch, const Want& want, int entries) const {
  validate(batch, max_batch_, max_context_, shape_.vocabulary);
  validate_features(batch, shape_);
  validate_taps(want.taps, shape_.layers);
  if (want.top_k < 0 || want.top_k > entries) {
    throw std::invalid_argument("top_k must be between 0 and the vocabulary's " +
                                std::to_string(entries) + ".");
  }
}

void ModelLimits::check_slot(int slot, int length) const {
  if (slot < 0 || slot >= max_batch_) {
    throw std::invalid_argument("Slot " + std::to_string(slot) + " is not among the " +
                                std::to_string(max_batch_) + " slots.");
  }
  if (length < 0 || length > max_context_) {
    throw std::invalid_argument("A slot holds 0 to " + std::to_string(max_context_) +
                                " tokens, not " + std::to_string(length) + ".");
  }
}

void ModelLimits::check_path(int slot, int base, std::span<const int> path) const {
  check_slot(slot, base);
  int before = -1;
  for (const int step : path) {
    if (step <= before) throw std::invalid_argument("The path to keep does not rise.");
    before = step;
  }
  if (!path.empty() && before >= max_context_ - base) {
    throw std::invalid_argument("The path to keep ends behind the " + std::to_string(max_context_) +
                                " tokens that a slot holds.");
  }
}

}  // namespace specquant
