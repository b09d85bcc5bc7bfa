// A model that a load names: the target or a drafter, with its file and its place on the device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/packed_file.h"
#include "core/synthetic_model.h"
#include "worker/hardware.h"

namespace specquant::worker {

// Where a model comes from and what will be computed with it.
struct ModelSource {
  std::string key;   // of the model in the request, for messages
  std::string id;    // decode::kTargetId for the target
  std::string path;  // empty for a synthetic model
  std::optional<core::SyntheticModel> synthetic;
  std::vector<Precision> precisions;
  std::string target_id;  // of a head: of the model whose features it reads; empty: the target
};

class LoadedModel {
 public:
  // Opens the file, where there is one. Throws core::Error.
  explicit LoadedModel(const ModelSource& source);

  const ModelSource& source() const { return source_; }
  const ModelShape& shape() const;
  const std::string& name() const;
  const std::string& content_hash() const { return content_hash_; }

  // Throws Error of type `bad_request` where the model has no positions for `max_context` tokens.
  void require_positions(int max_context) const;

  void put_on(Hardware& hardware, int max_batch, int max_context);
  void take_off() { device_.reset(); }
  DeviceModel& device() const { return *device_; }
  Model& model() const { return device_->model(); }

 private:
  ModelSource source_;
  std::unique_ptr<core::PackedFile> file_;  // null for a synthetic model
  std::string content_hash_;
  std::unique_ptr<DeviceModel> device_;
};

// Throws Error of type `bad_request` where the drafter's tokens are not the target's.
void require_vocabulary_of(const LoadedModel& target, const LoadedModel& drafter);

}  // namespace specquant::worker
