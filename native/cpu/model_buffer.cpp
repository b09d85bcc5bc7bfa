#include "cpu/model_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <string>

#include "core/errors.h"

namespace specquant::cpu {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;

}  // namespace

Buffer::Buffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* address = mmap(nullptr, bytes + kLargePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw core::Error(core::ErrorType::out_of_memory,
                      "The system refused " + std::to_string(bytes) + " bytes of memory.");
  }
  madvise(address, bytes + kLargePage, MADV_HUGEPAGE);  // a wish; small pages serve too
  mapping_ = address;
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  data_ = static_cast<std::byte*>(address) + (kLargePage - first % kLargePage) % kLargePage;
}

Buffer::~Buffer() {
  if (mapping_ != nullptr) munmap(mapping_, size_ + kLargePage);
}

}  // namespace specquant::cpu
