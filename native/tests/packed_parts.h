// A small valid packed file in memory, part by part, to be spoiled by tests. Its weights are zero.
#pragma once

#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/packed_file.h"

namespace specquant::test {

// Bytes that start on a multiple of 64, as those of a mapped file do.
class AlignedBytes {
 public:
  explicit AlignedBytes(const std::string& text) : size_(text.size()) {
    data_ = static_cast<std::byte*>(::operator new (size_ + 1, std::align_val_t{64}));
    std::memcpy(data_, text.data(), size_);
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes() { ::operator delete (data_, std::align_val_t{64}); }
  std::span<const std::byte> view() const { return {data_, size_}; }

 private:
  std::byte* data_;
  std::size_t size_;
};

// The two JSON objects of a file and its data; `bytes` puts them together.
struct PackedParts {
  nlohmann::json metadata;
  nlohmann::json tensors;  // safetensors header without __metadata__
  std::string data;

  PackedParts() {
    metadata = {{"format_version", 1},
                {"architecture", "llama"},
                {"name", "tiny"},
                {"hidden_size", 64},
                {"intermediate_size", 32},
                {"num_layers", 2},
                {"num_heads", 2},
                {"num_kv_heads", 1},
                {"head_dim", 32},
                {"vocab_size", 50},
                {"max_position", 256},
                {"rope_theta", 10000.0},
                {"rms_norm_eps", 1e-5},
                {"tied_head", true},
                {"weight_format", "q4_1"},
                {"content_hash", "none"},
                {"tensors", nlohmann::json::object()}};
    tensors = nlohmann::json::object();
    add("head", "affine8", 50, 64, 32);
    add("final_norm", "f32", 64, 1, 0);
    for (const std::string layer : {"layers.0.", "layers.1."}) {
      add(layer + "qkv", "affine4", 128, 64, 64);
      add(layer + "o", "affine4", 64, 64, 32);
      add(layer + "gate_up", "f16", 64, 64, 0);
      add(layer + "down", "bf16", 64, 32, 0);
      add(layer + "attn_norm", "f32", 64, 1, 0);
      add(layer + "mlp_norm", "f32", 64, 1, 0);
    }
  }

  void add(const std::string& name, const std::string& kind, int rows, int cols, int group) {
    metadata["tensors"][name] = {{"kind", kind}, {"rows", rows}, {"cols", cols}, {"group", group}};
    core::TensorKind parsed = core::TensorKind::f32;
    for (const auto known :
         {core::TensorKind::affine4, core::TensorKind::affine8, core::TensorKind::f16,
          core::TensorKind::bf16, core::TensorKind::i32}) {
      if (kind == core::name_of(known)) parsed = known;
    }
    const auto size = static_cast<std::size_t>(core::tensor_bytes(parsed, rows, cols, group));
    while (data.size() % 64 != 0) data += '\0';
    const bool vector = core::is_vector(parsed);
    const char* type = parsed == core::TensorKind::i32 ? "I32" : vector ? "F32" : "U8";
    tensors[name] = {{"dtype", type},
                     {"shape", {vector ? size / 4 : size}},
                     {"data_offsets", {data.size(), data.size() + size}}};
    data += std::string(size, '\0');
  }

  std::string bytes() const {
    nlohmann::json header = tensors;
    header["__metadata__"] = {{"specquant", metadata.dump()}};
    return with_header(header.dump(), data);
  }

  static std::string with_header(std::string header, const std::string& data) {
    while ((header.size() + 8) % 64 != 0) header += ' ';
    const uint64_t length = header.size();
    std::string file(sizeof(length), '\0');
    std::memcpy(file.data(), &length, sizeof(length));
    return file + header + data;
  }
};

}  // namespace specquant::test
