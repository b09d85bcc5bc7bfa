// The weights of a model on the device, by precision, and what they prove.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cuda/model_origin.h"
#include "cuda/weights.h"
#include "decode/device.h"

namespace specquant::cuda {

// The weights that one precision reads, and the kernels that read them.
struct WeightSet {
  std::vector<const DeviceMatrix*> layers;  // [layer][kind]
  const DeviceMatrix* embedding = nullptr;
  const DeviceMatrix* head = nullptr;
  const DeviceMatrix* feature_fc = nullptr;  // of a draft head: fc or feature_fc
  DeviceBuffer table;                        // of the layers' addresses
  Launchers layer_launchers, head_launchers, fc_launchers;
};

class ModelWeights {
 public:
  // `architecture`: what the kernels were compiled for (90 is sm_90). Throws core::Error as
  // make_cuda_model.
  ModelWeights(const ModelOrigin& origin, int architecture);

  void add(Precision precision);
  const WeightSet& set(Precision precision) const;  // throws std::invalid_argument
  const float* norms() const {
    return norms_.as<float>();
  }  // as StepArgs; ones where there is none
  // Vectors of [hidden]; null where the model has none.
  const float* first_norm() const { return vector("layers.0.attn_norm", 0); }
  const float* final_norm() const { return vector("final_norm", 2 * shape_.layers); }
  const float* embed_norm() const { return vector("embed_norm", 2 * shape_.layers + 1); }
  const float* fc_bias() const { return vector("fc_bias", 2 * shape_.layers + 2); }
  int head_rows() const { return head_rows_; }  // entries of a row of logits

  std::map<std::string, int64_t> bytes_by_kind() const;
  Proof proof(Precision precision) const;

 private:
  void place_vectors();
  const float* vector(const std::string& tensor, int place) const;
  const DeviceMatrix& place(const std::string& tensor, int rows, int columns, WeightFormat format);
  WeightFormat layer_format(Precision precision) const;
  WeightFormat outer_format(Precision precision, const std::string& tensor) const;

  const ModelOrigin origin_;
  const ModelShape shape_;
  const int architecture_;
  const std::vector<int32_t> draft_tokens_;
  const int head_rows_;
  std::map<std::string, DeviceMatrix> matrices_;  // by tensor and format
  DeviceBuffer norms_;                            // and the vectors of a draft head behind them
  std::map<Precision, WeightSet> sets_;
};

}  // namespace specquant::cuda
