// What stands in front of a draft head's layers: embedding and features become the residual stream
// and the input of the first product (docs/packed-format.md, Draft heads).
#pragma once

#include <cstdint>
#include <span>

#include "cuda/memory.h"
#include "cuda/model_origin.h"
#include "cuda/model_weights.h"
#include "cuda/step.h"

namespace specquant::cuda {

class HeadInput {
 public:
  // `weights` must outlive this object.
  HeadInput(const ModelOrigin& origin, const ModelWeights& weights);

  // Columns of its products, for buffers of codes.
  int widest() const { return fc_columns_ > first_columns_ ? fc_columns_ : first_columns_; }
  // Sums of squares under which a row is already normalized.
  const float* unit_squares() const { return unit_squares_.as<float>(); }

  // Fills the residual stream and the first product's input, and names the latter in `a`. A row's
  // feature is `feature_width` values of the target's or `hidden` of the head's own. `arrivals` is
  // a counter of the grid's barrier, zero at the start.
  void start(std::span<const std::span<const float>> features, const WeightSet& weights, bool bf16,
             int blocks, unsigned* arrivals, float* residual, StepArgs& a, cudaStream_t stream);

 private:
  // What the host sends in one copy, in front of the features.
  struct Upload {
    int32_t feature[kPassRows];  // where a row's begins, in values
    int32_t fused[kPassRows];    // the row of fc's product that it takes; -1: it is the stream
    int32_t source[kPassRows];   // rows that fc multiplies
  };
  int send(std::span<const std::span<const float>> features, cudaStream_t stream);

  const bool joins_;  // eagle2: fc takes [embedding; feature]; eagle3: so does the first product
  const bool norm_before_residual_;
  const int hidden_, feature_width_, fc_columns_, first_columns_;
  const ModelWeights& weights_;
  DeviceBuffer upload_;        // Upload, then features
  DeviceBuffer embedded_;      // [row][hidden]
  DeviceBuffer fc_input_;      // [row of fc][columns, padded], 16 bits
  DeviceBuffer fused_;         // [row of fc][hidden]
  DeviceBuffer first_;         // [row][2 · hidden, padded], 16 bits; of eagle3
  DeviceBuffer unit_squares_;  // [row][columns / 16]
  PinnedBuffer upload_host_;
};

}  // namespace specquant::cuda
