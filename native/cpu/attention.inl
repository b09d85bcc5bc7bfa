// Definition of attention.h on sixteen lanes.
#pragma once

#include "cpu/attention.h"
#include "cpu/elementwise.inl"
#include "cpu/simd.h"

namespace specquant::cpu::SPECQUANT_ISA {

constexpr int kHeadsAtOnce = 4;  // query heads that share the loads of keys and values
constexpr int kValuesAhead = 8;  // positions that are asked for before they are read

// Asks for a cache line of keys or values. The weights of a step push the cache out to memory, and
// the stretches of one head are too short for the hardware's prefetcher. An address past the end is
// harmless.
SPECQUANT_INLINE void fetch(const uint16_t* p) { __builtin_prefetch(p, 0, 3); }

// Scores of `blocks` key blocks for `heads` query heads: each is one sum over the dimensions, in
// order, whatever is computed beside it.
template <int heads, int blocks>
SPECQUANT_INLINE void score_blocks(const AttentionTask& task, const float* query, int first_block) {
  const std::size_t block_size = static_cast<std::size_t>(task.head_dim) * kKeyBlock;
  const uint16_t* keys = task.keys + static_cast<std::size_t>(first_block) * block_size;
  Vec16f sums[blocks][heads];
  for (int b = 0; b < blocks; ++b) {
    for (int h = 0; h < heads; ++h) sums[b][h] = Vec16f::zero();
  }
  for (int d = 0; d < task.head_dim; ++d) {
    fetch(keys + 2 * block_size + static_cast<std::size_t>(d) * kKeyBlock);
    Vec16f key[blocks];
    for (int b = 0; b < blocks; ++b) {
      key[b] = Vec16f::load_f16(keys + static_cast<std::size_t>(b) * block_size + d * kKeyBlock);
    }
    for (int h = 0; h < heads; ++h) {
      const Vec16f q = Vec16f::broadcast(query[h * task.head_dim + d]);
      for (int b = 0; b < blocks; ++b) sums[b][h] = fma(q, key[b], sums[b][h]);
    }
  }
  const Vec16f scale = Vec16f::broadcast(task.scale);
  for (int h = 0; h < heads; ++h) {
    float* row = task.scores + static_cast<std::size_t>(h) * task.score_stride;
    for (int b = 0; b < blocks; ++b) {
      (sums[b][h] * scale).store(row + (first_block + b) * kKeyBlock);
    }
  }
}

// Brings the scores of the ancestors to their logical places behind the prefix. Parents come before
// children, so no score is overwritten before it has moved. Returns the number of visible
// positions.
static int order_scores(const AttentionTask& task, float* scores) {
  int length = task.prefix;
  for (uint64_t rest = task.ancestors; rest != 0; rest &= rest - 1) {
    scores[length++] = scores[task.base + __builtin_ctzll(rest)];
  }
  return length;
}

// Turns scores into exp(score − largest) and returns the sum, lane i taking positions i mod 16.
static float exponentiate(float* scores, int length) {
  const int padded = (length + 15) / 16 * 16;
  for (int i = length; i < padded; ++i) scores[i] = -__builtin_inff();
  Vec16f largest = Vec16f::load(scores);
  for (int i = 16; i < padded; i += 16) largest = max(largest, Vec16f::load(scores + i));
  const Vec16f shift = Vec16f::broadcast(maximum(largest));
  Vec16f total = Vec16f::zero();
  for (int i = 0; i < padded; i += 16) {
    const Vec16f weight = exponential(Vec16f::load(scores + i) - shift);
    weight.store(scores + i);
    total = total + weight;
  }
  return sum(total);
}

// Σ weight · value over the visible positions in logical order, for 16·vectors dimensions.
template <int heads, int vectors>
SPECQUANT_INLINE void sum_values(const AttentionTask& task, int dimension, const Vec16f* inverse,
                                 float* out) {
  Vec16f sums[heads][vectors];
  for (int h = 0; h < heads; ++h) {
    for (int v = 0; v < vectors; ++v) sums[h][v] = Vec16f::zero();
  }
  const auto add = [&](int logical, int index) {
    const uint16_t* value =
        task.values + static_cast<std::size_t>(index) * task.head_dim + dimension;
    fetch(value + kValuesAhead * task.head_dim);
    fetch(value + kValuesAhead * task.head_dim + 32);
    Vec16f part[vectors];
    for (int v = 0; v < vectors; ++v) part[v] = Vec16f::load_f16(value + 16 * v);
    for (int h = 0; h < heads; ++h) {
      const Vec16f weight =
          Vec16f::broadcast(task.scores[static_cast<std::size_t>(h) * task.score_stride + logical]);
      for (int v = 0; v < vectors; ++v) sums[h][v] = fma(weight, part[v], sums[h][v]);
    }
  };
  for (int i = 0; i < task.prefix; ++i) add(i, i);
  int logical = task.prefix;
  for (uint64_t rest = task.ancestors; rest != 0; rest &= rest - 1) {
    add(logical++, task.base + __builtin_ctzll(rest));
  }
  for (int h = 0; h < heads; ++h) {
    for (int v = 0; v < vectors; ++v) {
      (sums[h][v] * inverse[h]).store(out + h * task.head_dim + dimension + 16 * v);
    }
  }
}

template <int heads>
static void attend_heads(const AttentionTask& task, int first_head) {
  const float* query = task.query + first_head * task.head_dim;
  float* out = task.out + first_head * task.head_dim;
  const int reach =
      task.ancestors == 0 ? task.prefix : task.base + 64 - __builtin_clzll(task.ancestors);
  const int blocks = (reach + kKeyBlock - 1) / kKeyBlock;
  int block = 0;
  for (; block + 2 <= blocks; block += 2) score_blocks<heads, 2>(task, query, block);
  if (block < blocks) score_blocks<heads, 1>(task, query, block);

  for (int i = 0; i < kValuesAhead; ++i) fetch(task.values + i * task.head_dim);
  Vec16f inverse[heads];
  for (int h = 0; h < heads; ++h) {
    float* scores = task.scores + static_cast<std::size_t>(h) * task.score_stride;
    const int length = order_scores(task, scores);
    inverse[h] = Vec16f::broadcast(1.0F) / Vec16f::broadcast(exponentiate(scores, length));
  }
  int dimension = 0;
  for (; dimension + 64 <= task.head_dim; dimension += 64) {
    sum_values<heads, 4>(task, dimension, inverse, out);
  }
  for (; dimension < task.head_dim; dimension += 16) {
    sum_values<heads, 1>(task, dimension, inverse, out);
  }
}

static void attend(const AttentionTask& task) {
  int head = 0;
  while (head < task.heads) {
    const int left = task.heads - head;
    switch (left < kHeadsAtOnce ? left : kHeadsAtOnce) {
      case 1:
        attend_heads<1>(task, head);
        break;
      case 2:
        attend_heads<2>(task, head);
        break;
      case 3:
        attend_heads<3>(task, head);
        break;
      default:
        attend_heads<4>(task, head);
        break;
    }
    head += left < kHeadsAtOnce ? left : kHeadsAtOnce;
  }
}

}  // namespace specquant::cpu::SPECQUANT_ISA
