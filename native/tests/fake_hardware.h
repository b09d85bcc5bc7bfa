// Hardware without a device, for tests of the worker's calls: it loads FakeModels and fails on
// order.
#pragma once

#include <functional>
#include <stdexcept>

#include "tests/fake_model.h"
#include "worker/hardware.h"

namespace specquant::test {

class FakeHardware : public worker::Hardware {
 public:
  // Called before each forward and each load; throws what the test wants to happen.
  std::function<void()> on_forward = [] {};
  std::function<void()> on_load = [] {};
  int loads = 0;
  bool lost = false;
  bool makes_synthetic = true;
  // Of the last synthetic model: seed, taps and rows of a reduced vocabulary.
  uint64_t seed = 0;
  std::vector<int> taps = {};
  int reduced = 0;

  worker::Description description() const override { return {"fake", "none", "none", 3}; }
  std::vector<Precision> precisions() const override {
    return {Precision::fp16, Precision::w4a16, Precision::w4a4};
  }
  int max_batch() const override { return 6; }
  bool usable() override { return !lost; }
  std::unique_ptr<worker::DeviceModel> load(const core::PackedFile& file, const core::PackedFile*,
                                            std::span<const Precision>, int max_batch,
                                            int max_context) override {
    const auto& target = file.metadata().target;
    return make(file.shape(), target ? target->taps : std::vector<int>(), 0, max_batch,
                max_context);
  }
  std::unique_ptr<worker::DeviceModel> load_synthetic(const core::SyntheticModel& model,
                                                      std::span<const Precision> precisions,
                                                      int max_batch, int max_context) override {
    if (!makes_synthetic) {
      return Hardware::load_synthetic(model, precisions, max_batch, max_context);
    }
    seed = model.seed;
    taps = model.target ? model.target->taps : std::vector<int>();
    reduced = model.draft_vocabulary;
    return make(model.shape, taps, reduced, max_batch, max_context);
  }

 private:
  std::unique_ptr<worker::DeviceModel> make(const ModelShape& shape,
                                            const std::vector<int>& wanted_taps, int entries,
                                            int max_batch, int max_context) {
    on_load();
    ++loads;
    FakeOptions options;
    options.vocabulary = shape.vocabulary;
    options.max_batch = max_batch;
    options.max_context = max_context;
    options.order = 2;
    options.taps = wanted_taps;
    options.reduced = entries;
    return std::make_unique<Loaded>(options, on_forward);
  }

  class HookedModel : public FakeModel {
   public:
    HookedModel(const FakeOptions& options, const std::function<void()>& hook)
        : FakeModel(options), hook_(hook) {}
    void forward(Precision precision, std::span<const Rows> batch, const Want& want) override {
      hook_();
      FakeModel::forward(precision, batch, want);
    }

   private:
    const std::function<void()>& hook_;
  };
  class Loaded : public worker::DeviceModel {
   public:
    Loaded(const FakeOptions& options, const std::function<void()>& hook) : model_(options, hook) {}
    Model& model() override { return model_; }
    double read_bandwidth() override { return 1e9; }

   private:
    HookedModel model_;
  };
};

}  // namespace specquant::test
