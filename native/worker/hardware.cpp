#include "worker/hardware.h"

#include <array>
#include <stdexcept>

#include "core/names.h"
#include "worker/cpu_hardware.h"
#ifdef SPECQUANT_CUDA
#include "worker/cuda_hardware.h"
#endif

namespace specquant::worker {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Hardware> (*make)(int threads);  // null: known, but not in this build
  const char* remedy;
};

#ifdef SPECQUANT_CUDA
constexpr auto kMakeCuda = make_cuda_hardware;
#else
constexpr std::unique_ptr<Hardware> (*kMakeCuda)(int) = nullptr;
#endif

constexpr std::array kKinds{
    Kind{"cpu", make_cpu_hardware, ""},
    Kind{"cuda", kMakeCuda, "Build it with 'make native-cuda', or use --device cpu."}};

}  // namespace

std::unique_ptr<Hardware> make_hardware(const std::string& name, int threads) {
  for (const Kind& kind : kKinds) {
    if (name != kind.name) continue;
    if (kind.make == nullptr) {
      throw std::invalid_argument("This worker was built without the device " + core::quoted(name) +
                                  ". " + kind.remedy);
    }
    return kind.make(threads);
  }
  throw std::invalid_argument("Unknown device " + core::quoted(name) + ". " +
                              core::suggestion(name, hardware_names()));
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (kind.make != nullptr) names.emplace_back(kind.name);
  }
  return names;
}

}  // namespace specquant::worker
