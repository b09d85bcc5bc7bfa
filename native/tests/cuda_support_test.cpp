// Which drivers can run this build's machine code, and what is said of those and of GPUs that
// cannot or lack memory. No GPU is needed to decide it.
#include "core/cuda_support.h"

#include <doctest/doctest.h>

#include <array>

namespace specquant::core {
namespace {

TEST_CASE("a driver of the runtime's major version or a newer one is enough") {
  CHECK(driver_problem(13000, 13000).empty());
  CHECK(driver_problem(13020, 13000).empty());
  CHECK(driver_problem(13000, 13020).empty());
  CHECK(driver_problem(14000, 13000).empty());
  CHECK(driver_problem(12080, 12040).empty());
}

TEST_CASE("an older driver is refused with both versions") {
  CHECK(driver_problem(12090, 13020) ==
        "The NVIDIA driver serves CUDA 12.9, and this worker needs 13.0. Install a newer driver.");
  CHECK(driver_problem(11080, 12000) ==
        "The NVIDIA driver serves CUDA 11.8, and this worker needs 12.0. Install a newer driver.");
}

TEST_CASE("a missing driver is not called an old one") {
  CHECK(driver_problem(0, 13000) == "No NVIDIA driver is installed.");
}

TEST_CASE("another GPU is refused with its name and what was compiled") {
  const std::array hopper{90};
  CHECK(architecture_problem("NVIDIA A100-SXM4-80GB", 8, 0, hopper) ==
        "This build has kernels for sm_90, and the GPU NVIDIA A100-SXM4-80GB is sm_80.");
  const std::array all{80, 89, 90};
  CHECK(architecture_problem("NVIDIA B200", 10, 0, all) ==
        "This build has kernels for sm_80, sm_89, sm_90, and the GPU NVIDIA B200 is sm_100.");
}

TEST_CASE("an allocation that failed is told with its bytes and the GPU's") {
  CHECK(memory_problem("the KV cache", 8'589'934'592, 2'000'000'000, 150'000'000'000) ==
        "The GPU has too little free memory for the KV cache: 8.590 GB more are needed, and 2.000 "
        "GB of 150.000 GB are free. Lower the batch size or the context, or free the GPU.");
  CHECK(memory_problem("norms", 1'000'000, 0, 1'000'000'000).find(": 0.001 GB more") !=
        std::string::npos);
}

}  // namespace
}  // namespace specquant::core
