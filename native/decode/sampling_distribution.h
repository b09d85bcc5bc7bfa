// The distribution that sampling draws tokens from: softmax at a temperature, cut to the most
// probable tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace specquant::decode {

struct Warp {
  double temperature = 1.0;  // above 0
  // The most probable tokens, as few as reach this probability together, share all of it; among
  // equals those of lower ids come first. Above 0; 1 keeps all.
  double top_p = 1.0;
};

class SamplingDistribution {
 public:
  void assign(std::span<const float> logits, const Warp& warp);
  // Entry i of `logits` is of token vocabulary[i]; the other tokens below `size` have probability
  // 0.
  void assign(std::span<const float> logits, std::span<const int32_t> vocabulary, std::size_t size,
              const Warp& warp);

  std::size_t size() const { return weights_.size(); }
  double probability(int32_t token) const;

  // The token at which the cumulative probability passes `uniform`, which is in [0, 1).
  int32_t draw(double uniform) const;

  // Becomes norm(max(p - q, 0)), p this and q the other, of the same size: what is left to draw
  // from once a token drawn from q has been refused (Leviathan et al., arXiv 2211.17192).
  void subtract(const SamplingDistribution& other);

 private:
  std::vector<float> weights_;  // probability times total_, by token
  std::vector<double> sums_;    // of the weights of each stretch of tokens
  double total_ = 0.0;
  std::vector<int32_t> order_;  // most probable tokens first, as far as top_p needed them

  void cut(double top_p);
  void add_up();
};

}  // namespace specquant::decode
