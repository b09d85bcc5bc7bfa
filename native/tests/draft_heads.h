// Small random draft heads, made from the shape of their target, and what is put to them. Callers
// give each head a seed of its own.
#pragma once

#include <random>
#include <span>
#include <vector>

#include "decode/device.h"
#include "tests/packed_builder.h"

namespace specquant::cpu::reference {

// A reduced vocabulary: tokens with gaps of one, two and three.
inline std::vector<int32_t> frequent_tokens(int vocabulary) {
  std::vector<int32_t> tokens;
  for (int token = 1; token < vocabulary; token += 1 + token % 3) tokens.push_back(token);
  return tokens;
}

// One layer behind fc; the target's embedding and output head. `shape` is the target's.
inline RandomModelSpec eagle2_head(RandomModelSpec shape, const RandomModel& target) {
  RandomModelSpec spec = std::move(shape);
  spec.shape.layers = 1;
  spec.shape.tied_head = false;
  spec.architecture = core::Architecture::eagle2;
  spec.target = &target;
  spec.taps = {3};
  spec.own_embedding = spec.own_head = spec.first_norm = spec.final_norm = false;
  return spec;
}

// Everything of its own, and a second layer.
inline RandomModelSpec with_all_of_its_own(RandomModelSpec eagle2) {
  eagle2.shape.layers = 2;
  eagle2.own_embedding = eagle2.own_head = eagle2.first_norm = eagle2.final_norm = eagle2.fc_bias =
      true;
  return eagle2;
}

// Three hidden states, a reduced vocabulary with rows of its own.
inline RandomModelSpec eagle3_head(RandomModelSpec eagle2) {
  eagle2.architecture = core::Architecture::eagle3;
  eagle2.taps = {0, 1, 2};
  eagle2.first_norm = eagle2.final_norm = eagle2.own_head = true;
  eagle2.draft_tokens = frequent_tokens(eagle2.shape.vocabulary);
  return eagle2;
}

// Tokens, and features of `width` a token.
struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<float> features;
  int width = 0;

  int size() const { return static_cast<int>(tokens.size()); }
  Rows rows(int slot, int first, int count) const {
    return {slot,
            first,
            std::span(tokens).subspan(first, count),
            {},
            -1,
            std::span(features).subspan(static_cast<std::size_t>(first) * width,
                                        static_cast<std::size_t>(count) * width)};
  }
};

inline Sequence random_sequence(int count, int width, unsigned seed, int vocabulary = 300) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Sequence sequence{{}, std::vector<float>(static_cast<std::size_t>(count) * width), width};
  for (int i = 0; i < count; ++i)
    sequence.tokens.push_back(static_cast<int32_t>(random() % vocabulary));
  for (float& value : sequence.features) value = normal(random);
  return sequence;
}

}  // namespace specquant::cpu::reference
