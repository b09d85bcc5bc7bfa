#include "cuda/cache.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace specquant::cuda {
namespace {

constexpr int kWhole = 64;  // positions of an attention split
constexpr int kMaxPath = 64;

int whole_splits(int positions) { return (positions + kWhole - 1) / kWhole * kWhole; }

struct Path {
  int length;
  int step[kMaxPath];
};

// One block a head, one thread a dimension; steps rise, so no entry is overwritten before it moved.
__global__ void compact_entries(__half* keys, __half* values, int positions, int base, Path path) {
  const int head_dim = static_cast<int>(blockDim.x), d = static_cast<int>(threadIdx.x);
  __half* key = keys + static_cast<size_t>(blockIdx.x) * positions * head_dim + d;
  __half* value = values + (static_cast<size_t>(blockIdx.x) * head_dim + d) * positions;
  for (int i = 0; i < path.length; ++i) {
    const int from = base + path.step[i], to = base + i;
    key[static_cast<size_t>(to) * head_dim] = key[static_cast<size_t>(from) * head_dim];
    value[to] = value[from];
  }
}

}  // namespace

struct KvCache::Saved {
  int length = 0, heads = 0, head_dim = 0;
  DeviceBuffer keys, values;  // [head][position][dimension], [head][dimension][position]
};

KvCache::KvCache(const ModelShape& shape, int slots, int max_context)
    : heads_(shape.layers * shape.kv_heads),
      head_dim_(shape.head_dim),
      positions_(whole_splits(max_context)),
      keys_(static_cast<std::size_t>(slots) * slot_elements() * sizeof(__half), "the KV cache"),
      values_(static_cast<std::size_t>(slots) * slot_elements() * sizeof(__half), "the KV cache") {}

double KvCache::bytes_needed(const ModelShape& shape, int slots, int max_context) {
  return 2.0 * sizeof(__half) * slots * shape.layers * shape.kv_heads * shape.head_dim *
         whole_splits(max_context);
}

std::size_t KvCache::slot_elements() const {
  return static_cast<std::size_t>(heads_) * head_dim_ * positions_;
}

void KvCache::compact(int slot, int base, std::span<const int> path, cudaStream_t stream) {
  if (path.size() > kMaxPath) {
    throw std::invalid_argument("A path to keep has at most " + std::to_string(kMaxPath) +
                                " steps.");
  }
  Path steps{static_cast<int>(path.size()), {}};
  std::ranges::copy(path, steps.step);
  compact_entries<<<static_cast<unsigned>(heads_), static_cast<unsigned>(head_dim_), 0, stream>>>(
      keys() + slot * slot_elements(), values() + slot * slot_elements(), positions_, base, steps);
  check(cudaGetLastError(), "moving cache entries");
}

std::shared_ptr<const void> KvCache::save(int slot, int length, cudaStream_t stream) const {
  auto saved = std::make_shared<Saved>();
  saved->length = length;
  saved->heads = heads_;
  saved->head_dim = head_dim_;
  if (length == 0) return saved;
  const std::size_t rows = static_cast<std::size_t>(heads_) * head_dim_;
  const std::size_t width = length * sizeof(__half), pitch = positions_ * sizeof(__half);
  saved->keys = DeviceBuffer(rows * width, "a saved prompt");
  saved->values = DeviceBuffer(rows * width, "a saved prompt");
  check(cudaMemcpy2DAsync(saved->keys.as<void>(), width * head_dim_,
                          keys() + slot * slot_elements(), pitch * head_dim_, width * head_dim_,
                          heads_, cudaMemcpyDeviceToDevice, stream),
        "saving a prompt");
  check(cudaMemcpy2DAsync(saved->values.as<void>(), width, values() + slot * slot_elements(), pitch,
                          width, rows, cudaMemcpyDeviceToDevice, stream),
        "saving a prompt");
  check(cudaStreamSynchronize(stream), "saving a prompt");
  return saved;
}

void KvCache::restore(int slot, const std::shared_ptr<const void>& saved, cudaStream_t stream) {
  const auto& from = *static_cast<const Saved*>(saved.get());
  if (from.heads != heads_ || from.head_dim != head_dim_ || from.length > positions_) {
    throw std::invalid_argument("The saved cache entries are not of this model.");
  }
  if (from.length == 0) return;
  const std::size_t rows = static_cast<std::size_t>(heads_) * head_dim_;
  const std::size_t width = from.length * sizeof(__half), pitch = positions_ * sizeof(__half);
  check(cudaMemcpy2DAsync(keys() + slot * slot_elements(), pitch * head_dim_, from.keys.as<void>(),
                          width * head_dim_, width * head_dim_, heads_, cudaMemcpyDeviceToDevice,
                          stream),
        "restoring a prompt");
  check(cudaMemcpy2DAsync(values() + slot * slot_elements(), pitch, from.values.as<void>(), width,
                          width, rows, cudaMemcpyDeviceToDevice, stream),
        "restoring a prompt");
  check(cudaStreamSynchronize(stream), "restoring a prompt");
}

}  // namespace specquant::cuda
