#include "core/cuda_support.h"

#include "core/memory.h"

namespace specquant::core {
namespace {

std::string version(int cuda) {
  return std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

}  // namespace

std::string driver_problem(int driver, int runtime) {
  if (driver == 0) return "No NVIDIA driver is installed.";
  if (driver / 1000 >= runtime / 1000) return "";
  return "The NVIDIA driver serves CUDA " + version(driver) + ", and this worker needs " +
         version(runtime / 1000 * 1000) + ". Install a newer driver.";
}

std::string architecture_problem(const std::string& gpu, int major, int minor,
                                 std::span<const int> architectures) {
  std::string names;
  for (const int compiled : architectures) {
    names += (names.empty() ? "sm_" : ", sm_") + std::to_string(compiled);
  }
  return "This build has kernels for " + names + ", and the GPU " + gpu + " is sm_" +
         std::to_string(major) + std::to_string(minor) + ".";
}

std::string memory_problem(const std::string& what, std::size_t bytes, std::size_t free,
                           std::size_t total) {
  const auto size = [](std::size_t count) { return gigabytes(static_cast<double>(count)); };
  return "The GPU has too little free memory for " + what + ": " + size(bytes) +
         " more are needed, and " + size(free) + " of " + size(total) +
         " are free. Lower the batch size or the context, or free the GPU.";
}

}  // namespace specquant::core
