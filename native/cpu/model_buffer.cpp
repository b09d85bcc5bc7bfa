#include "cpu/model_buffer.h"

#include <sys/mman.h>

#include <string>

#include "core/errors.h"

namespace specquant::cpu {
Buffer::Buffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    throw core::Error(core::ErrorType::out_of_memory,
                      "The system refused " + std::to_string(bytes) + " bytes of memory.");
  }
  madvise(address, bytes, MADV_HUGEPAGE);  // a wish; small pages serve too
  data_ = static_cast<std::byte*>(address);
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace specquant::cpu
