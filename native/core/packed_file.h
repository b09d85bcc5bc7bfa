// Reader of the packed model file (docs/packed-format.md): the file is mapped, checked as a whole,
// and read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "core/errors.h"
#include "core/packed_metadata.h"
#include "core/packed_tensor.h"
#include "decode/device.h"

namespace specquant::core {

// An opened file whose every tensor has passed the checks. Views live as long as the file object.
class PackedFile {
 public:
  // Maps `path`. Throws Error of type `model` that names the file and, where it is one, the tensor.
  explicit PackedFile(const std::string& path);
  // Reads `bytes`, which the caller keeps alive and aligned to 64; `name` stands in errors.
  PackedFile(std::span<const std::byte> bytes, const std::string& name);
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;
  ~PackedFile();

  const PackedMetadata& metadata() const { return metadata_; }
  const ModelShape& shape() const { return metadata_.shape; }
  const std::string& path() const { return path_; }
  const std::string& name() const { return metadata_.name; }  // shown in reports
  const std::string& content_hash() const {
    return metadata_.content_hash;
  }  // sha256 of tensors and metadata
  const std::string& weight_format() const { return metadata_.weight_format; }

  // Throws Error of type `model` where there is no such tensor.
  const TensorView& tensor(const std::string& name) const;
  const TensorView& layer_tensor(int layer, const std::string& part) const;  // layers.N.part
  const TensorView& head() const { return tensor("head"); }
  const TensorView& embedding() const { return tensor(shape().tied_head ? "head" : "embed"); }
  // Null where the file has no such tensor.
  const TensorView* find(const std::string& name) const;
  const TensorView* find_in_layer(int layer, const std::string& part) const;
  // The token of each row of the head, rising; empty where row i is token i.
  std::span<const int32_t> draft_tokens() const;
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  class Mapping;
  std::unique_ptr<Mapping> mapping_;
  std::string path_;
  PackedMetadata metadata_;
  std::map<std::string, TensorView> tensors_;

  void read(std::span<const std::byte> bytes);
  nlohmann::json parse_part(std::span<const std::byte> text, const char* part) const;
  std::vector<ExpectedTensor> wanted_tensors(const nlohmann::json& descriptions) const;
  void place_tensors(const nlohmann::json& header, const nlohmann::json& descriptions,
                     std::span<const std::byte> data);
  void check_draft_tokens() const;
  void check_columns() const;
  [[noreturn]] void fail(const std::string& what) const;
};

}  // namespace specquant::core
