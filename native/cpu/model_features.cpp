#include "cpu/model_features.h"

#include <stdexcept>
#include <string>

namespace specquant::cpu {

void FeatureResults::start(std::size_t rows, std::span<const int> taps, int hidden) {
  rows_ = rows;
  hidden_ = static_cast<std::size_t>(hidden);
  taps_.assign(taps.begin(), taps.end());
  if (values_.size() < rows_ * width()) values_.resize(rows_ * width());
}

std::span<const float> FeatureResults::row(std::size_t row) const {
  if (taps_.empty()) throw std::out_of_range("The last forward was not asked for features.");
  if (row >= rows_) {
    throw std::out_of_range("Row " + std::to_string(row) + " of " + std::to_string(rows_) +
                            " does not exist.");
  }
  return {values_.data() + row * width(), width()};
}

}  // namespace specquant::cpu
