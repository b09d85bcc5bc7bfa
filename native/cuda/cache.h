// The KV cache on the device, f16: keys by position, values by dimension, so that attention loads
// both in whole vectors.
#pragma once

#include <memory>
#include <span>

#include "cuda/memory.h"
#include "cuda/step.h"
#include "decode/device.h"

namespace specquant::cuda {

class KvCache {
 public:
  KvCache(const ModelShape& shape, int slots, int max_context);
  static double bytes_needed(const ModelShape& shape, int slots, int max_context);

  __half* keys() const { return keys_.as<__half>(); }
  __half* values() const { return values_.as<__half>(); }
  int positions() const { return positions_; }  // max_context, in whole splits
  std::size_t bytes() const { return keys_.bytes() + values_.bytes(); }

  // As Model's. The path has at most 64 steps.
  void compact(int slot, int base, std::span<const int> path, cudaStream_t stream);
  std::shared_ptr<const void> save(int slot, int length, cudaStream_t stream) const;
  void restore(int slot, const std::shared_ptr<const void>& saved, cudaStream_t stream);

 private:
  struct Saved;
  std::size_t slot_elements() const;
  int heads_, head_dim_, positions_;  // heads of all layers
  DeviceBuffer keys_, values_;
};

}  // namespace specquant::cuda
