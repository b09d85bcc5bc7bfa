// The KV cache of all slots, in f16, laid out for attention.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cpu/model_buffer.h"
#include "decode/device.h"

namespace specquant::cpu {

class KvCache {
 public:
  KvCache() = default;
  KvCache(const ModelShape& shape, int slots, int max_context);

  // Bytes that the constructor would take, as a float so that absurd requests do not wrap around.
  static double bytes_needed(const ModelShape& shape, int slots, int max_context);
  std::size_t bytes() const { return buffer_.size(); }

  // Start of one key-value head's keys, [block][dimension][position], and values,
  // [position][dimension].
  uint16_t* keys(int slot, int layer, int head) { return data() + offset(slot, layer, head); }
  uint16_t* values(int slot, int layer, int head) { return keys(slot, layer, head) + plane(); }

  // The key or value of one position, for dimension 0 .. head_dim − 1.
  uint16_t& key(int slot, int layer, int head, int position, int dimension);
  uint16_t& value(int slot, int layer, int head, int position, int dimension);

  // Moves entries base + path[i] to base + i in every layer and head. `path` rises.
  void compact(int slot, int base, std::span<const int> path);

  // A copy of the first `length` positions of a slot. The copy may outlive the cache and goes back
  // into any slot of a cache of the same model.
  std::shared_ptr<const void> save(int slot, int length) const;
  void restore(int slot, const std::shared_ptr<const void>& saved);

 private:
  struct Saved;

  // Values of the keys, and of the values, of one head of a slot.
  std::size_t plane() const { return static_cast<std::size_t>(positions_) * head_dim_; }
  std::size_t offset(int slot, int layer, int head) const;  // of the head's keys, in values
  uint16_t* data() { return reinterpret_cast<uint16_t*>(buffer_.data()); }
  // Values of a head that hold the first `length` positions: whole key blocks.
  std::size_t key_extent(int length) const;

  int layers_ = 0, heads_ = 0, head_dim_ = 0;
  int positions_ = 0;  // of a slot, whole key blocks
  Buffer buffer_;
};

}  // namespace specquant::cpu
