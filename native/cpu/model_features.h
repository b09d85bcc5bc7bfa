// Hidden states that a forward leaves behind for a draft head: of each row the wanted taps.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace specquant::cpu {

class FeatureResults {
 public:
  // Makes room for `rows` rows of taps of `hidden` values; earlier results are gone.
  void start(std::size_t rows, std::span<const int> taps, int hidden);

  std::span<const int> taps() const { return taps_; }
  // Where tap number `index` of the wanted ones goes. Threads may write different places.
  float* place(std::size_t row, std::size_t index) {
    return values_.data() + row * width() + index * hidden_;
  }

  // [taps · hidden]. Throws std::out_of_range where there is no such row or no tap was wanted.
  std::span<const float> row(std::size_t row) const;

 private:
  std::size_t width() const { return taps_.size() * hidden_; }

  std::size_t rows_ = 0, hidden_ = 0;
  std::vector<int> taps_;
  std::vector<float> values_;  // [row][tap][hidden]; grows, never shrinks
};

}  // namespace specquant::cpu
