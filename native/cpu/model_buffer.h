// Large zeroed memory that costs nothing until it is touched.
#pragma once

#include <cstddef>
#include <utility>

namespace specquant::cpu {

// Pages from the system, aligned to 64 bytes and more; large pages where the system grants them,
// since a stream over small pages loses time at each page's end. Throws core::Error of type
// out_of_memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapping_(std::exchange(other.mapping_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapping_, other.mapping_);
    return *this;
  }
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;
};

}  // namespace specquant::cpu
