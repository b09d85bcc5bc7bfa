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

  const ModelShape& shape() const { return shape_; }
  const std::string& name() const { return name_; }  // shown in reports
  const std::string& content_hash() const {
    return content_hash_;
  }  // sha256 of tensors and metadata
  const std::string& weight_format() const { return weight_format_; }

  // Throws Error of type `model` where there is no such tensor.
  const TensorView& tensor(const std::string& name) const;
  const TensorView& layer_tensor(int layer, const std::string& part) const;  // layers.N.part
  const TensorView& head() const { return tensor("head"); }
  const TensorView& embedding() const { return tensor(shape_.tied_head ? "head" : "embed"); }
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  class Mapping;
  std::unique_ptr<Mapping> mapping_;
  std::string path_;
  std::string name_, content_hash_, weight_format_;
  ModelShape shape_;
  std::map<std::string, TensorView> tensors_;

  void read(std::span<const std::byte> bytes);
  nlohmann::json parse_part(std::span<const std::byte> text, const char* part) const;
  void read_metadata(const nlohmann::json& metadata);
  void place_tensors(const nlohmann::json& header, const nlohmann::json& descriptions,
                     std::span<const std::byte> data);
  [[noreturn]] void fail(const std::string& what) const;
};

}  // namespace specquant::core
