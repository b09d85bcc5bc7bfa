// From the outputs of qkv to the attention's: bias, norms and rotation, the cache, the sums over
// it.
#include <algorithm>
#include <cmath>

#include "cpu/model_pass.h"
#include "cpu/model_pieces.h"

namespace specquant::cpu {

void Pass::add_bias_and_normalize(const LayerWeights& layer, int tile_begin, int tile_end,
                                  float* outputs) const {
  const int width = (tile_end - tile_begin) * kTileRows;
  const int head_dim = shape_.head_dim;
  for (int row = 0; row < static_cast<int>(rows_.size()); ++row) {
    float* values = outputs + at(row, kPieceOutputs);
    if (layer.qkv_bias != nullptr) {
      const float* bias = layer.qkv_bias + at(tile_begin, kTileRows);
      for (int i = 0; i < width; ++i) values[i] += bias[i];
    }
    if (layer.q_norm == nullptr) continue;
    for (int start = 0; start < width; start += head_dim) {
      const int head = (tile_begin * kTileRows + start) / head_dim;
      if (head >= shape_.heads + shape_.kv_heads) break;
      floats_.rms_norm(values + start, head < shape_.heads ? layer.q_norm : layer.k_norm,
                       shape_.norm_epsilon, head_dim, values + start);
    }
  }
}

// Takes tiles of queries, keys and values to their places: rotated queries to query_, rotated keys
// and values to the cache. A tile lies within one head.
void Pass::place_heads(int layer, int tile_begin, int tile_end, const float* outputs) {
  const int head_dim = shape_.head_dim;
  for (int row = 0; row < static_cast<int>(rows_.size()); ++row) {
    const PassRow& place = rows_[row];
    const float* cosine = rotary_.cosine(place.position);
    const float* sine = rotary_.sine(place.position);
    for (int tile = tile_begin; tile < tile_end; ++tile) {
      const float* values = outputs + at(row, kPieceOutputs) + at(tile - tile_begin, kTileRows);
      const int head = tile * kTileRows / head_dim;
      const int dimension = tile * kTileRows % head_dim;
      if (head < shape_.heads) {
        floats_.rotate(values, cosine + dimension / 2, sine + dimension / 2,
                       query_.data() + at(row, attention_width_) + at(tile, kTileRows));
      } else if (head < shape_.heads + shape_.kv_heads) {
        float rotated[kTileRows];
        uint16_t halves[kTileRows];
        floats_.rotate(values, cosine + dimension / 2, sine + dimension / 2, rotated);
        floats_.round_to_f16(rotated, halves);
        uint16_t* key =
            &cache_.key(place.slot, layer, head - shape_.heads, place.cache_index, dimension);
        for (int i = 0; i < kTileRows; ++i) key[i * kKeyBlock] = halves[i];
      } else {
        const int value_head = head - shape_.heads - shape_.kv_heads;
        floats_.round_to_f16(
            values, &cache_.value(place.slot, layer, value_head, place.cache_index, dimension));
      }
    }
  }
}

int Pass::attention_grain(const Member& member) const {
  const int group = shape_.heads / shape_.kv_heads;
  const int rows = static_cast<int>(rows_.size());
  // Query heads are handed out by whole key-value heads, which they share; but one row has too few
  // of those to keep the threads equally busy.
  if (rows == 1) return (shape_.heads + member.size() - 1) / member.size();
  // Rows go out in pairs where those keep the threads equally busy, or are many.
  const int parts = shape_.kv_heads * rows;
  const bool pairs = parts % (kRowsAtOnce * member.size()) == 0 || parts >= 16 * member.size();
  return pairs ? kRowsAtOnce * group : group;
}

void Pass::attention(Member& member, int layer) {
  const int group = shape_.heads / shape_.kv_heads;
  const int rows = static_cast<int>(rows_.size());
  const bool packs = packs_attention(weights_->layers[static_cast<std::size_t>(layer)]);
  AttentionTask task;
  task.head_dim = shape_.head_dim;
  task.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim)));
  task.scores = scores_[static_cast<std::size_t>(member.index())].data();
  task.score_stride = score_stride_;
  member.share(shape_.heads * rows, attention_grain(member), [&](int begin, int end) {
    for (int next = begin; next < end;) {
      const int key_head = next / group / rows;
      const int row = next / group % rows;
      const int first = next % group;
      const int slot = rows_[static_cast<std::size_t>(row)].slot;
      task.heads = std::min(end - next, group - first);
      task.rows = 1;
      if (end - next >= 2 * group && row + 1 < rows &&
          rows_[static_cast<std::size_t>(row) + 1].slot == slot) {
        task.rows = 2;
      }
      next += task.rows * task.heads;
      task.keys = cache_.keys(slot, layer, key_head);
      task.values = cache_.values(slot, layer, key_head);
      const int column = (key_head * group + first) * shape_.head_dim;
      for (int r = 0; r < task.rows; ++r) {
        const std::size_t start = at(row + r, attention_width_) + static_cast<std::size_t>(column);
        const PassRow& place = rows_[static_cast<std::size_t>(row + r)];
        task.row[r] = {query_.data() + start, place.prefix, place.trunk, place.ancestors,
                       attention_.data() + start};
      }
      floats_.attend(task);
      if (!packs) continue;
      for (int r = 0; r < task.rows; ++r) {
        kernels_.pack_columns(task.row[r].out, row + r, column, task.heads * shape_.head_dim,
                              inputs_[0].o);
      }
    }
  });
}

}  // namespace specquant::cpu
