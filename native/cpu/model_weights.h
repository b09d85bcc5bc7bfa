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

// A head of q or k with a norm of its own is computed by one thread in one piece.
constexpr int kLargestNormedHead = 256;

struct LayerWeights {
  Matrix qkv, o, gate_up, down;
  const float* attention_norm = nullptr;  // null: the stream goes in as it is
  const float* mlp_norm = nullptr;
  const float* qkv_bias = nullptr;  // null: none
  const float* q_norm = nullptr;    // null: none; k_norm likewise
  const float* k_norm = nullptr;
  // Column c of a matrix takes element columns[c] of its input; null: element c.
  const int32_t* qkv_columns = nullptr;
  const int32_t* o_columns = nullptr;
  const int32_t* gate_up_columns = nullptr;
  const int32_t* down_columns = nullptr;
};

// How the input of each matrix of a layer is represented.
struct LayerInputs {
  ActivationKind qkv = ActivationKind::f32;
  ActivationKind o = ActivationKind::f32;
  ActivationKind gate_up = ActivationKind::f32;
  ActivationKind down = ActivationKind::f32;
};

// Everything that a forward at one precision needs to know about numbers.
struct WeightSet {
  LayerInputs layer_inputs;
  ActivationKind head_input = ActivationKind::f32;
  std::vector<LayerWeights> layers;
  Matrix embedding, head;
  const float* final_norm = nullptr;  // null: the stream goes to the head as it is
  // Of draft heads: the product that brings the target's features in, and what goes with it.
  Matrix feature_fc;  // eagle2: of [embedding; feature]
  ActivationKind feature_input = ActivationKind::f32;
  const float* fc_bias = nullptr;     // eagle2; null: none
  const float* embed_norm = nullptr;  // eagle3
};

// Weight sets over one packed file. Every matrix is copied once, in the order of its use, into one
// stretch of memory with large pages: a stream from there runs a tenth faster than from the mapped
// file. For fp16 and bf16 it is converted on the way where the file stores another kind. Sets share
// the copies. Norms are read from the file, which must outlive this object.
//
// A draft head without embedding or output head takes those of its target: the embedding is read in
// the target's file, in the kind that stands there, and the output head, or its rows for the draft
// vocabulary, is copied.
class ModelWeights {
 public:
  // Throws core::Error: `unsupported` where the file cannot serve a precision, `model` where a
  // shape does not suit the kernels; both name the tensor.
  // `target` is null but for a draft head.
  ModelWeights(const core::PackedFile& file, const core::PackedFile* target,
               std::span<const Precision> precisions, ThreadPool& pool);

  // Bytes that the constructor would take for the matrices.
  static double bytes_needed(const core::PackedFile& file, const core::PackedFile* target,
                             std::span<const Precision> precisions);

  const WeightSet& set(Precision precision) const;  // throws std::invalid_argument if not loaded
  const std::map<std::string, int64_t>& bytes_by_kind() const { return bytes_by_kind_; }
  int head_rows() const { return head_rows_; }
  int64_t vector_bytes() const { return bytes_by_kind_.at("f32"); }  // norms and biases

 private:
  Matrix place(Precision precision, const core::TensorView& tensor, ThreadPool& pool);
  WeightSet build(Precision precision, const core::PackedFile& file, const core::PackedFile* target,
                  const core::TensorView& head, ThreadPool& pool);

  Buffer arena_;
  std::size_t arena_used_ = 0;
  int head_rows_ = 0;
  std::map<std::string, Matrix> placed_;  // by tensor and kind
  std::map<Precision, WeightSet> sets_;
  std::map<std::string, int64_t> bytes_by_kind_;
};

}  // namespace specquant::cpu
