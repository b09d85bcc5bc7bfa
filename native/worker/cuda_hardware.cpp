#include "worker/cuda_hardware.h"

#include <stdexcept>

#include "cuda/model.h"

namespace specquant::worker {
namespace {

constexpr int kMaxBatch = 64;

class LoadedOnCuda : public DeviceModel {
 public:
  explicit LoadedOnCuda(std::unique_ptr<Model> model) : model_(std::move(model)) {}
  Model& model() override { return *model_; }
  double read_bandwidth() override { return cuda::measure_read_bandwidth(); }

 private:
  std::unique_ptr<Model> model_;
};

class CudaHardware : public Hardware {
 public:
  explicit CudaHardware(cuda::DeviceDescription device) : device_(std::move(device)) {}

  Description description() const override {
    return {"cuda", device_.name, device_.architecture, 1};
  }
  std::vector<Precision> precisions() const override {
    return {Precision::fp16,  Precision::bf16, Precision::w8a8,
            Precision::w4a16, Precision::w4a8, Precision::w4a4};
  }
  int max_batch() const override { return kMaxBatch; }
  bool usable() override { return cuda::device_usable(); }
  std::unique_ptr<DeviceModel> load(const core::PackedFile& file, const core::PackedFile* target,
                                    std::span<const Precision> precisions, int max_batch,
                                    int max_context) override {
    return std::make_unique<LoadedOnCuda>(
        cuda::make_cuda_model(file, precisions, max_batch, max_context, target));
  }
  std::unique_ptr<DeviceModel> load_synthetic(const core::SyntheticModel& model,
                                              std::span<const Precision> precisions, int max_batch,
                                              int max_context) override {
    return std::make_unique<LoadedOnCuda>(
        cuda::make_cuda_model(model, precisions, max_batch, max_context));
  }

 private:
  cuda::DeviceDescription device_;
};

}  // namespace

std::unique_ptr<Hardware> make_cuda_hardware(int) {
  try {
    return std::make_unique<CudaHardware>(cuda::describe_device());
  } catch (const core::Error& error) {
    throw std::invalid_argument(error.what());
  }
}

}  // namespace specquant::worker
