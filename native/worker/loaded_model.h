// A model that a load names: the target or a drafter, with its file and its place on the device.
#pragma once

#include <memory>
#include <optional>
#include <span>
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
  std::string target_id;  // of a head: of the model whose features it reads
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

  // Of a draft head: the id of the model whose features it reads, and what it reads of them.
  bool is_head() const { return head_target() != nullptr; }
  const std::string& target_id() const { return source_.target_id; }
  const core::HeadTarget* head_target() const;  // null for every other model
  std::vector<int> taps() const;

  // `target` is the model that a head drafts for; null for every other model.
  void put_on(Hardware& hardware, const LoadedModel* target, int max_batch, int max_context);
  void take_off() { device_.reset(); }
  DeviceModel& device() const { return *device_; }
  Model& model() const { return device_->model(); }

 private:
  ModelSource source_;
  std::unique_ptr<core::PackedFile> file_;  // null for a synthetic model
  std::string content_hash_;
  std::unique_ptr<DeviceModel> device_;
};

// Opens the target and its drafters, in this order, and checks that they go together. Throws
// core::Error.
std::vector<std::unique_ptr<LoadedModel>> open_models(const ModelSource& target,
                                                      std::span<const ModelSource> drafters,
                                                      int max_context);

}  // namespace specquant::worker
