#include <algorithm>
#include <array>
#include <vector>

#include "core/cuda_support.h"
#include "core/errors.h"
#include "core/names.h"
#include "cuda/memory.h"
#include "cuda/model.h"

namespace specquant::cuda {
namespace {

struct Named {
  const char* name;
  ModelShape shape;
};
const std::array kSynthetic{
    Named{"llama-3-8b", {4096, 14336, 32, 32, 8, 128, 128256, 8192, 500000.0F, 1e-5F, false}},
    Named{"llama-3-70b", {8192, 28672, 80, 64, 8, 128, 128256, 8192, 500000.0F, 1e-5F, false}},
    Named{"llama-3.2-1b", {2048, 8192, 16, 32, 8, 64, 128256, 8192, 500000.0F, 1e-5F, true}},
    Named{"llama-3.2-3b", {3072, 8192, 28, 24, 8, 128, 128256, 8192, 500000.0F, 1e-5F, true}}};

__global__ void read_all(const uint4* data, size_t count, uint32_t* out) {
  uint32_t sum = 0;
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
#pragma unroll 8
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const uint4 v = __ldcs(data + i);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0xdeadbeefU) *out = sum;  // so that the loads are needed
}

// What this file, and with it the engine, was compiled for (900 is sm_90).
constexpr int kCompiled[] = {__CUDA_ARCH_LIST__};

// Which of them the GPU runs; 0 where it runs none.
int compiled_for_gpu() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, read_all);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();  // clears it
    return 0;
  }
  check(error, "asking for the kernels' architecture");
  return attributes.ptxVersion;
}

void refuse(const std::string& problem) {
  if (problem.empty()) return;
  throw core::Error(core::ErrorType::device,
                    problem + " Use --device cpu, or a host whose NVIDIA GPU this build serves.");
}

}  // namespace

ModelShape synthetic_shape(const std::string& name) {
  std::vector<std::string> names;
  for (const Named& named : kSynthetic) {
    if (name == named.name) return named.shape;
    names.emplace_back(named.name);
  }
  throw std::invalid_argument("Unknown synthetic model " + core::quoted(name) + ". " +
                              core::suggestion(name, names));
}

DeviceDescription describe_device() {
  int driver = 0, runtime = 0, count = 0;
  check(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  refuse(core::driver_problem(driver, runtime));
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    refuse(std::string("No GPU can be used: ") +
           (error == cudaSuccess ? "CUDA finds none" : cudaGetErrorString(error)) + ".");
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's properties");
  const int compiled = compiled_for_gpu();
  if (compiled == 0) {
    std::vector<int> architectures;
    for (const int of_build : kCompiled) architectures.push_back(of_build / 10);
    refuse(core::architecture_problem(properties.name, properties.major, properties.minor,
                                      architectures));
  }
  return {properties.name,
          "sm_" + std::to_string(properties.major) + std::to_string(properties.minor), compiled,
          properties.multiProcessorCount};
}

bool device_usable() { return cudaDeviceSynchronize() == cudaSuccess; }

double measure_read_bandwidth() {
  constexpr size_t kBytes = size_t{2} << 30;
  constexpr int kRepeats = 8;
  const auto blocks = static_cast<unsigned>(describe_device().multiprocessors * 8);
  const DeviceBuffer data(kBytes, "the bandwidth test"),
      out(sizeof(uint32_t), "the bandwidth test");
  cudaEvent_t begin{}, end{};
  check(cudaEventCreate(&begin), "the bandwidth test");
  check(cudaEventCreate(&end), "the bandwidth test");
  float best = 0.0F;
  for (int i = 0; i < kRepeats; ++i) {
    check(cudaEventRecord(begin), "the bandwidth test");
    read_all<<<blocks, 512>>>(data.as<uint4>(), kBytes / sizeof(uint4), out.as<uint32_t>());
    check(cudaEventRecord(end), "the bandwidth test");
    check(cudaEventSynchronize(end), "the bandwidth test");
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "the bandwidth test");
    best = std::max(best, static_cast<float>(kBytes / 1e3) / (milliseconds));
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(best) * 1e6;
}

}  // namespace specquant::cuda
