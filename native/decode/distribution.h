// Softmax at temperature 1 over logits: exponentials in single precision, sums in double.
#pragma once

#include <cstdint>
#include <span>

namespace specquant::decode {

// View of one logit row with what is needed to read probabilities from it.
class Distribution {
 public:
  explicit Distribution(std::span<const float> logits);

  double log_probability(int32_t token) const;
  double probability(int32_t token) const;
  int32_t top() const { return top_; }  // ties go to the lower id
  double margin() const;                // top-1 minus top-2 logit; 0 with a single token

  // KL divergence of `other` from this, this || other, in nats.
  double divergence(const Distribution& other) const;

 private:
  std::span<const float> logits_;
  int32_t top_ = 0;
  double second_ = 0.0;   // second largest logit
  double log_sum_ = 0.0;  // log of the sum of exponentials
};

}  // namespace specquant::decode
