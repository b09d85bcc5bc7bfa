// The weights of a model as one precision reads them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/packed_file.h"
#include "cpu/kernels.h"
#include "cpu/model_buffer.h"
#include "cpu/threads.h"

namespace specquant::cpu {

struct LayerWeights {
  Matrix qkv, o, gate_up, down;
  const float* attention_norm = nullptr;
  const float* mlp_norm = nullptr;
};

// Everything that a forward at one precision needs to know about numbers.
struct WeightSet {
  ActivationKind layer_input = ActivationKind::f32;  // of the products inside the layers
  ActivationKind head_input = ActivationKind::f32;
  std::vector<LayerWeights> layers;
  Matrix embedding, head;
  const float* final_norm = nullptr;
};

// Weight sets over one packed file. Every matrix is copied once, in the order of its use, into one
// stretch of memory with large pages: a stream from there runs a tenth faster than from the mapped
// file. For fp16 and bf16 it is converted on the way where the file stores another kind. Sets share
// the copies. Norms are read from the file, which must outlive this object.
class ModelWeights {
 public:
  // Throws core::Error: `unsupported` where the file cannot serve a precision, `model` where a
  // shape does not suit the kernels; both name the tensor.
  ModelWeights(const core::PackedFile& file, std::span<const Precision> precisions,
               ThreadPool& pool);

  // Bytes that the constructor would take for the matrices.
  static double bytes_needed(const core::PackedFile& file, std::span<const Precision> precisions);

  const WeightSet& set(Precision precision) const;  // throws std::invalid_argument if not loaded
  const std::map<std::string, int64_t>& bytes_by_kind() const { return bytes_by_kind_; }

 private:
  Matrix place(Precision precision, const core::TensorView& tensor, ThreadPool& pool);
  WeightSet build(Precision precision, const core::PackedFile& file, ThreadPool& pool);

  Buffer arena_;
  std::size_t arena_used_ = 0;
  std::map<std::string, Matrix> placed_;  // by tensor and kind
  std::map<Precision, WeightSet> sets_;
  std::map<std::string, int64_t> bytes_by_kind_;
};

const char* name_of(WeightKind kind);
const char* name_of(ActivationKind kind);

}  // namespace specquant::cpu
