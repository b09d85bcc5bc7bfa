// Attention of a row or two over the KV cache of one key-value head.
#pragma once

#include <cstdint>

namespace specquant::cpu {

// Keys lie in blocks of this many positions, [block][dimension][position], so that the scores of a
// block come from one multiply-add a dimension. Values lie as [position][dimension].
constexpr int kKeyBlock = 16;

// Rows that share the loads of keys and values. Their results are those of rows computed alone.
constexpr int kRowsAtOnce = 2;

// A row sees `prefix` positions that lie at their own index in the cache and, in a tree, the
// positions base + j for each bit j of `ancestors`, whose logical order is their depth. Scores,
// maximum, sum and the sum of values all run in logical order, so that a row of a tree computes
// exactly what its root path would have computed as a chain.
struct AttentionRow {
  const float* query = nullptr;  // [heads][head_dim], after rotary embedding
  int prefix = 0;
  int base = 0;            // cache index of bit 0 of `ancestors`
  uint64_t ancestors = 0;  // 0 for a chain: the row itself is then in the prefix
  float* out = nullptr;    // [heads][head_dim]
};

// What query heads of one key-value head read and write, for one or two rows of a sequence.
struct AttentionTask {
  AttentionRow row[kRowsAtOnce];
  int rows = 1;
  const uint16_t* keys = nullptr;    // f16
  const uint16_t* values = nullptr;  // f16
  int heads = 0;                     // query heads that share the key-value head
  int head_dim = 0;                  // a multiple of 16
  float scale = 1.0F;                // 1 / sqrt(head_dim)
  float* scores = nullptr;           // scratch: [kRowsAtOnce][min(heads, 4)][score_stride]
  int score_stride = 0;  // a multiple of 16, at least all visible cache indices rounded up to 32
};

}  // namespace specquant::cpu
