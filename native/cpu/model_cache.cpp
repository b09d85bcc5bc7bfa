#include "cpu/model_cache.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/attention.h"

namespace specquant::cpu {
namespace {

int whole_blocks(int positions) { return (positions + kKeyBlock - 1) / kKeyBlock * kKeyBlock; }

}  // namespace

struct KvCache::Saved {
  int length = 0, layers = 0, heads = 0, head_dim = 0;
  std::vector<uint16_t> data;  // [layer][head]: keys, then values
};

KvCache::KvCache(const ModelShape& shape, int slots, int max_context)
    : layers_(shape.layers),
      heads_(shape.kv_heads),
      head_dim_(shape.head_dim),
      positions_(whole_blocks(max_context)),
      buffer_(static_cast<std::size_t>(bytes_needed(shape, slots, max_context))) {}

double KvCache::bytes_needed(const ModelShape& shape, int slots, int max_context) {
  const double positions = static_cast<double>(slots) * whole_blocks(max_context);
  return positions * shape.layers * shape.kv_heads * shape.head_dim * 2 * sizeof(uint16_t);
}

std::size_t KvCache::offset(int slot, int layer, int head) const {
  const std::size_t index =
      (static_cast<std::size_t>(slot) * layers_ + static_cast<std::size_t>(layer)) * heads_ +
      static_cast<std::size_t>(head);
  return index * 2 * plane();
}

uint16_t& KvCache::key(int slot, int layer, int head, int position, int dimension) {
  const std::size_t block = static_cast<std::size_t>(position / kKeyBlock);
  return keys(slot, layer,
              head)[(block * head_dim_ + static_cast<std::size_t>(dimension)) * kKeyBlock +
                    position % kKeyBlock];
}

uint16_t& KvCache::value(int slot, int layer, int head, int position, int dimension) {
  return values(slot, layer, head)[static_cast<std::size_t>(position) * head_dim_ + dimension];
}

void KvCache::compact(int slot, int base, std::span<const int> path) {
  for (std::size_t i = 0; i < path.size(); ++i) {
    const int from = base + path[i];
    const int to = base + static_cast<int>(i);
    if (from == to) continue;
    for (int layer = 0; layer < layers_; ++layer) {
      for (int head = 0; head < heads_; ++head) {
        const uint16_t* source = &value(slot, layer, head, from, 0);
        std::copy(source, source + head_dim_, &value(slot, layer, head, to, 0));
        for (int d = 0; d < head_dim_; ++d) {
          key(slot, layer, head, to, d) = key(slot, layer, head, from, d);
        }
      }
    }
  }
}

std::size_t KvCache::key_extent(int length) const {
  return static_cast<std::size_t>(whole_blocks(length)) * head_dim_;
}

std::shared_ptr<const void> KvCache::save(int slot, int length) const {
  if (length < 0 || length > positions_) {
    throw std::invalid_argument("Cannot save " + std::to_string(length) +
                                " positions of a slot of " + std::to_string(positions_) + ".");
  }
  auto saved = std::make_shared<Saved>();
  *saved = {length, layers_, heads_, head_dim_, {}};
  const std::size_t key_count = key_extent(length);
  const std::size_t value_count = static_cast<std::size_t>(length) * head_dim_;
  saved->data.reserve((key_count + value_count) * layers_ * heads_);
  const auto* data = reinterpret_cast<const uint16_t*>(buffer_.data());
  for (int layer = 0; layer < layers_; ++layer) {
    for (int head = 0; head < heads_; ++head) {
      const uint16_t* head_keys = data + offset(slot, layer, head);
      const uint16_t* head_values = head_keys + plane();
      saved->data.insert(saved->data.end(), head_keys, head_keys + key_count);
      saved->data.insert(saved->data.end(), head_values, head_values + value_count);
    }
  }
  return saved;
}

void KvCache::restore(int slot, const std::shared_ptr<const void>& saved) {
  const auto prefix = std::static_pointer_cast<const Saved>(saved);
  if (prefix == nullptr || prefix->layers != layers_ || prefix->heads != heads_ ||
      prefix->head_dim != head_dim_ || prefix->length > positions_) {
    throw std::invalid_argument("The saved KV prefix does not fit this model's cache.");
  }
  const std::size_t key_count = key_extent(prefix->length);
  const std::size_t value_count = static_cast<std::size_t>(prefix->length) * head_dim_;
  const uint16_t* source = prefix->data.data();
  for (int layer = 0; layer < layers_; ++layer) {
    for (int head = 0; head < heads_; ++head) {
      std::copy(source, source + key_count, keys(slot, layer, head));
      source += key_count;
      std::copy(source, source + value_count, values(slot, layer, head));
      source += value_count;
    }
  }
}

}  // namespace specquant::cpu
