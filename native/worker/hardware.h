// What the worker asks of a kind of hardware: to describe itself and to load a model. The calls of
// the protocol stand above it, so that every device answers alike.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/errors.h"
#include "core/packed_file.h"
#include "core/synthetic_model.h"
#include "decode/device.h"

namespace specquant::worker {

struct Description {
  std::string kind, name, isa;
  int threads = 1;  // of the host that take part in a forward
};

// A model on the device.
class DeviceModel {
 public:
  DeviceModel() = default;
  DeviceModel(const DeviceModel&) = delete;
  DeviceModel& operator=(const DeviceModel&) = delete;
  virtual ~DeviceModel() = default;

  virtual Model& model() = 0;
  // Bytes a second, measured now by streaming a buffer far larger than the caches.
  virtual double read_bandwidth() = 0;
};

class Hardware {
 public:
  Hardware() = default;
  Hardware(const Hardware&) = delete;
  Hardware& operator=(const Hardware&) = delete;
  virtual ~Hardware() = default;

  virtual Description description() const = 0;
  virtual std::vector<Precision> precisions() const = 0;
  virtual int max_batch() const = 0;
  // False where the device is lost to this process, so that only a fresh worker can go on.
  virtual bool usable() { return true; }
  // The file outlives the model, and so does `target`, the file of the model that a draft head was
  // trained for; null for every other model. Throws core::Error that says what to change.
  virtual std::unique_ptr<DeviceModel> load(const core::PackedFile& file,
                                            const core::PackedFile* target,
                                            std::span<const Precision> precisions, int max_batch,
                                            int max_context) = 0;
  // As load, with weights that the device draws from a seed. Throws Error of type `unsupported`
  // where it makes none.
  virtual std::unique_ptr<DeviceModel> load_synthetic(const core::SyntheticModel& model,
                                                      std::span<const Precision> precisions,
                                                      int max_batch, int max_context) {
    static_cast<void>(model), static_cast<void>(precisions);
    static_cast<void>(max_batch), static_cast<void>(max_context);
    throw core::Error(core::ErrorType::unsupported,
                      "The device '" + description().kind +
                          "' makes no synthetic models; give 'model.path', or use --device cuda.");
  }
};

// The hardware of this build by its --device name. `threads` 0: one a core. Throws
// std::invalid_argument with a sentence for the user where the name is unknown or not built in.
std::unique_ptr<Hardware> make_hardware(const std::string& name, int threads);
std::vector<std::string> hardware_names();

}  // namespace specquant::worker
