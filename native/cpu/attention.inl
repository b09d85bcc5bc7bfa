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

// Scores of `blocks` key blocks for `heads` query heads of each row, whose queries and scores start
// at `query[row]` and task.scores: each is one sum over the dimensions, in order, whatever is
// computed beside it.
template <int heads, int rows, int blocks>
SPECQUANT_INLINE void score_blocks(const AttentionTask& task, const float* const* query,
                                   int first_block) {
  const std::size_t block_size = static_cast<std::size_t>(task.head_dim) * kKeyBlock;
  const uint16_t* keys = task.keys + static_cast<std::size_t>(first_block) * block_size;
  Vec16f sums[rows][heads][blocks];
  for (auto& row : sums) {
    for (auto& head : row) {
      for (Vec16f& sum : head) sum = Vec16f::zero();
    }
  }
  for (int d = 0; d < task.head_dim; ++d) {
    fetch(keys + 2 * block_size + static_cast<std::size_t>(d) * kKeyBlock);
    Vec16f key[blocks];
    for (int b = 0; b < blocks; ++b) {
      key[b] = Vec16f::load_f16(keys + static_cast<std::size_t>(b) * block_size + d * kKeyBlock);
    }
    for (int r = 0; r < rows; ++r) {
      for (int h = 0; h < heads; ++h) {
        const Vec16f q = Vec16f::broadcast(query[r][h * task.head_dim + d]);
        for (int b = 0; b < blocks; ++b) sums[r][h][b] = fma(q, key[b], sums[r][h][b]);
      }
    }
  }
  const Vec16f scale = Vec16f::broadcast(task.scale);
  for (int r = 0; r < rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      float* scores = task.scores + static_cast<std::size_t>(r * heads + h) * task.score_stride;
      for (int b = 0; b < blocks; ++b) {
        (sums[r][h][b] * scale).store(scores + (first_block + b) * kKeyBlock);
      }
    }
  }
}

// Brings the scores of the ancestors to their logical places behind the prefix. Parents come before
// children, so no score is overwritten before it has moved. Returns the number of visible
// positions.
static int order_scores(const AttentionRow& row, float* scores) {
  int length = row.prefix;
  for (uint64_t rest = row.ancestors; rest != 0; rest &= rest - 1) {
    scores[length++] = scores[row.base + __builtin_ctzll(rest)];
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

// Σ weight · value over the visible positions in logical order, for 16·vectors dimensions: of all
// rows over the prefix that they share, then of each over the rest.
template <int heads, int rows, int vectors>
struct ValueSums {
  const AttentionTask& task;
  const int dimension;
  Vec16f sums[rows][heads][vectors];

  template <int first, int last>
  SPECQUANT_INLINE void add(int logical, int index) {
    const uint16_t* value =
        task.values + static_cast<std::size_t>(index) * task.head_dim + dimension;
    fetch(value + kValuesAhead * task.head_dim);
    fetch(value + kValuesAhead * task.head_dim + 32);
    Vec16f part[vectors];
    for (int v = 0; v < vectors; ++v) part[v] = Vec16f::load_f16(value + 16 * v);
    for (int r = first; r < last; ++r) {
      const float* weights =
          task.scores + static_cast<std::size_t>(r * heads) * task.score_stride + logical;
      for (int h = 0; h < heads; ++h) {
        const Vec16f weight =
            Vec16f::broadcast(weights[static_cast<std::size_t>(h) * task.score_stride]);
        for (int v = 0; v < vectors; ++v) sums[r][h][v] = fma(weight, part[v], sums[r][h][v]);
      }
    }
  }

  template <int r>
  SPECQUANT_INLINE void add_rest(int shared) {
    const AttentionRow& row = task.row[r];
    for (int i = shared; i < row.prefix; ++i) add<r, r + 1>(i, i);
    int logical = row.prefix;
    for (uint64_t rest = row.ancestors; rest != 0; rest &= rest - 1) {
      add<r, r + 1>(logical++, row.base + __builtin_ctzll(rest));
    }
  }
};

template <int heads, int rows, int vectors>
SPECQUANT_INLINE void sum_values(const AttentionTask& task, int dimension,
                                 const Vec16f (&inverse)[rows][heads], float* const* out) {
  ValueSums<heads, rows, vectors> values{task, dimension, {}};
  for (auto& row : values.sums) {
    for (auto& head : row) {
      for (Vec16f& sum : head) sum = Vec16f::zero();
    }
  }
  int shared = task.row[0].prefix;
  if constexpr (rows == 2) {
    if (task.row[1].prefix < shared) shared = task.row[1].prefix;
  }
  for (int i = 0; i < shared; ++i) values.template add<0, rows>(i, i);
  values.template add_rest<0>(shared);
  if constexpr (rows == 2) values.template add_rest<1>(shared);
  for (int r = 0; r < rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      for (int v = 0; v < vectors; ++v) {
        (values.sums[r][h][v] * inverse[r][h])
            .store(out[r] + h * task.head_dim + dimension + 16 * v);
      }
    }
  }
}

template <int heads, int rows>
static void attend_heads(const AttentionTask& task, int first_head) {
  const float* query[rows];
  float* out[rows];
  int reach = 0;
  for (int r = 0; r < rows; ++r) {
    const AttentionRow& row = task.row[r];
    query[r] = row.query + first_head * task.head_dim;
    out[r] = row.out + first_head * task.head_dim;
    const int end =
        row.ancestors == 0 ? row.prefix : row.base + 64 - __builtin_clzll(row.ancestors);
    if (end > reach) reach = end;
  }
  const int blocks = (reach + kKeyBlock - 1) / kKeyBlock;
  int block = 0;
  for (; block + 2 <= blocks; block += 2) score_blocks<heads, rows, 2>(task, query, block);
  if (block < blocks) score_blocks<heads, rows, 1>(task, query, block);

  for (int i = 0; i < kValuesAhead; ++i) fetch(task.values + i * task.head_dim);
  Vec16f inverse[rows][heads];
  for (int r = 0; r < rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      float* scores = task.scores + static_cast<std::size_t>(r * heads + h) * task.score_stride;
      const int length = order_scores(task.row[r], scores);
      inverse[r][h] = Vec16f::broadcast(1.0F) / Vec16f::broadcast(exponentiate(scores, length));
    }
  }
  constexpr int vectors = rows * heads <= 6 ? 4 : 2;  // as many sums as the registers hold
  int dimension = 0;
  for (; dimension + 16 * vectors <= task.head_dim; dimension += 16 * vectors) {
    sum_values<heads, rows, vectors>(task, dimension, inverse, out);
  }
  for (; dimension < task.head_dim; dimension += 16) {
    sum_values<heads, rows, 1>(task, dimension, inverse, out);
  }
}

template <int rows>
static void attend_rows(const AttentionTask& task) {
  int head = 0;
  while (head < task.heads) {
    const int left = task.heads - head;
    switch (left < kHeadsAtOnce ? left : kHeadsAtOnce) {
      case 1:
        attend_heads<1, rows>(task, head);
        break;
      case 2:
        attend_heads<2, rows>(task, head);
        break;
      case 3:
        attend_heads<3, rows>(task, head);
        break;
      default:
        attend_heads<4, rows>(task, head);
        break;
    }
    head += left < kHeadsAtOnce ? left : kHeadsAtOnce;
  }
}

static void attend(const AttentionTask& task) {
  if (task.rows == 1) return attend_rows<1>(task);
#if defined(SPECQUANT_SIMD_AVX512)
  attend_rows<2>(task);
#else  // there are too few registers for two rows
  AttentionTask one = task;
  one.rows = 1;
  attend_rows<1>(one);
  one.row[0] = task.row[1];
  attend_rows<1>(one);
#endif
}

}  // namespace specquant::cpu::SPECQUANT_ISA
