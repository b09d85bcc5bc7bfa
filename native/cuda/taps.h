// Hidden states that a forward leaves behind for a draft head: of each row the wanted taps.
#pragma once

#include <span>
#include <vector>

#include "cuda/memory.h"
#include "decode/device.h"

namespace specquant::cuda {

// Where a wanted tap comes from.
struct TapPart {
  const float* from;  // [row][hidden]
  bool normed;
};

class TapResults {
 public:
  // `final_norm` are its weights on the device; null where the model has none.
  TapResults(const ModelShape& shape, const float* final_norm);

  // A forward of `rows` rows begins; earlier results are gone. `taps` as Want::taps.
  void start(std::size_t rows, std::span<const int> taps, cudaStream_t stream);
  // StepArgs::kept.
  float* const* kept() const { return streams_.bytes() > 0 ? kept_.as<float*>() : nullptr; }
  // Before the layers of a pass: `residual` is the stream in front of the first one.
  void keep_embedding(int count, const float* residual, cudaStream_t stream);
  // Behind them: takes the taps of the pass, whose rows are `first` ... of the forward. They are
  // here once the stream has been waited for.
  void take(std::size_t first, int count, cudaStream_t stream);

  // [taps · hidden]. Throws std::out_of_range where there is no such row or no tap was wanted.
  std::span<const float> row(std::size_t row) const;

 private:
  void place(std::span<const int> taps, cudaStream_t stream);
  std::size_t width() const { return taps_.size() * hidden_; }

  const int layers_;
  const std::size_t hidden_;
  const float epsilon_;
  const float* final_norm_;

  std::vector<int> taps_;
  std::size_t rows_ = 0;
  std::vector<TapPart> parts_host_;
  std::vector<float*> kept_host_;
  DeviceBuffer streams_;        // [kept stream][row of a pass][hidden]
  float* embedding_ = nullptr;  // of them, the one in front of the first layer; null: not wanted
  DeviceBuffer kept_, parts_;
  DeviceBuffer out_;     // [row of a pass][tap][hidden]
  PinnedBuffer values_;  // [row][tap][hidden]
  std::size_t room_ = 0;
};

}  // namespace specquant::cuda
