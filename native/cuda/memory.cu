#include "cuda/memory.h"

#include "core/errors.h"

namespace specquant::cuda {

void check(int error, const char* what) {
  const auto code = static_cast<cudaError_t>(error);
  if (code == cudaSuccess) return;
  cudaGetLastError();  // clears it where it can be cleared
  if (code == cudaErrorMemoryAllocation) {
    throw core::Error(core::ErrorType::out_of_memory,
                      std::string("The GPU has too little free memory for ") + what +
                          ". Lower the batch size or the context, or free the GPU.");
  }
  throw core::Error(core::ErrorType::device,
                    std::string("CUDA failed at ") + what + ": " + cudaGetErrorString(code) + ".");
}

DeviceBuffer::DeviceBuffer(std::size_t bytes, const char* what) : bytes_(bytes) {
  if (bytes == 0) return;
  check(cudaMalloc(&data_, bytes), what);
  check(cudaMemset(data_, 0, bytes), what);
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) {
  check(cudaMallocHost(&data_, bytes), "host buffers");
}

}  // namespace specquant::cuda
