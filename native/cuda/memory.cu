#include "cuda/memory.h"

#include "core/cuda_support.h"
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
  const cudaError_t error = cudaMalloc(&data_, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears it
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for the free memory");
    throw core::Error(core::ErrorType::out_of_memory,
                      core::memory_problem(what, bytes, free, total));
  }
  check(error, what);
  check(cudaMemset(data_, 0, bytes), what);
  // Models have streams of their own, which do not wait for this one: what they write must come
  // later.
  check(cudaStreamSynchronize(nullptr), what);
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) {
  const cudaError_t error = cudaMallocHost(&data_, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears it
    throw core::Error(core::ErrorType::out_of_memory,
                      "The host has too little memory for the buffers of the GPU's copies. Lower "
                      "the batch size, or free memory.");
  }
  check(error, "host buffers");
}

}  // namespace specquant::cuda
