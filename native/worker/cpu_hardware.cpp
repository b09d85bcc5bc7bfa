#include "worker/cpu_hardware.h"

#include <fstream>

#include "cpu/bandwidth.h"
#include "cpu/kernels.h"
#include "cpu/model.h"
#include "cpu/threads.h"

namespace specquant::worker {
namespace {

constexpr int kMaxBatch = 64;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

class LoadedOnCpu : public DeviceModel {
 public:
  explicit LoadedOnCpu(std::unique_ptr<cpu::CpuModel> model) : model_(std::move(model)) {}
  Model& model() override { return *model_; }
  double read_bandwidth() override { return cpu::measure_read_bandwidth(model_->pool()); }

 private:
  std::unique_ptr<cpu::CpuModel> model_;
};

class CpuHardware : public Hardware {
 public:
  explicit CpuHardware(int threads)
      : pool_(std::make_shared<cpu::ThreadPool>(threads == 0 ? cpu::available_cores() : threads)) {}

  Description description() const override {
    return {"cpu", processor_name(), cpu::kernels().name, pool_->size()};
  }
  std::vector<Precision> precisions() const override {
    return {Precision::fp16,          Precision::bf16,        Precision::w8a8,
            Precision::w4a16,         Precision::w4a8,        Precision::w4a4,
            Precision::w4a4_g16,      Precision::w4a4_qkv8,   Precision::w4a4_od8,
            Precision::w4a4_g16_qkv8, Precision::w4a4_g16_od8};
  }
  int max_batch() const override { return kMaxBatch; }
  std::unique_ptr<DeviceModel> load(const core::PackedFile& file, const core::PackedFile* target,
                                    std::span<const Precision> precisions, int max_batch,
                                    int max_context) override {
    return std::make_unique<LoadedOnCpu>(
        cpu::make_cpu_model(file, precisions, max_batch, max_context, pool_, target));
  }

 private:
  const std::shared_ptr<cpu::ThreadPool> pool_;  // one model computes at a time
};

}  // namespace

std::unique_ptr<Hardware> make_cpu_hardware(int threads) {
  return std::make_unique<CpuHardware>(threads);
}

}  // namespace specquant::worker
