// Device memory that a pass works in.
#pragma once

#include "core/rotary.h"
#include "cuda/memory.h"
#include "cuda/step.h"
#include "decode/device.h"

namespace specquant::cuda {

class StepBuffers {
 public:
  // `widest`: the most columns of any product's input. `sliced_tiles`: the most tiles, times their
  // slices, of a matrix whose columns are cut into slices. `blocks`: of a narrow pass.
  StepBuffers(const ModelShape& shape, int widest, int sliced_tiles, int max_context, int blocks,
              const core::RopeScaling& scaling);

  float* residual() const { return residual_.as<float>(); }
  // The sizes and addresses of this memory, and of the model's shape.
  void describe(StepArgs& a) const;

 private:
  class CodesBuffer {
   public:
    CodesBuffer() = default;
    explicit CodesBuffer(int columns);
    Codes codes() const { return {codes_.as<int8_t>(), scales_.as<float>()}; }

   private:
    DeviceBuffer codes_, scales_;
  };

  // Twice what Handover points to.
  void allocate_handover(int blocks);

  void fill_rotary(int max_context, const core::RopeScaling& scaling);

  const ModelShape shape_;
  DeviceBuffer rotary_, residual_, squares_, normed_, query_, attention_, mlp_, codes_, scales_,
      slice_sums_, slice_arrivals_;
  CodesBuffer normed_codes_, attention_codes_, mlp_codes_;
  DeviceBuffer handover_memory_;
  Handover handover_{};
};

}  // namespace specquant::cuda
