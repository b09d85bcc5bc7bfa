#include "cuda/taps.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "cuda/row_sum.cuh"
#include "cuda/step.h"

namespace specquant::cuda {
namespace {

constexpr const char* kWhat = "hidden states";

// One block a wanted tap and row.
__global__ void gather(const TapPart* parts, const float* norm, int hidden, float epsilon,
                       float* out) {
  const TapPart part = parts[blockIdx.x];
  const size_t row = blockIdx.y;
  const float* from = part.from + row * hidden;
  float* to = out + (row * gridDim.x + blockIdx.x) * hidden;
  float scale = 1.0F;
  if (part.normed) scale = inverse_rms_of(hidden, epsilon, [&](int i) { return from[i]; });
  for (int i = static_cast<int>(threadIdx.x); i < hidden; i += kRowThreads) {
    to[i] = part.normed ? from[i] * scale * norm[i] : from[i];
  }
}

}  // namespace

TapResults::TapResults(const ModelShape& shape, const float* final_norm)
    : layers_(shape.layers),
      hidden_(static_cast<std::size_t>(shape.hidden)),
      epsilon_(shape.norm_epsilon),
      final_norm_(final_norm) {}

void TapResults::start(std::size_t rows, std::span<const int> taps, cudaStream_t stream) {
  rows_ = rows;
  if (!std::ranges::equal(taps, taps_)) place(taps, stream);
  if (room_ >= rows * width()) return;
  room_ = rows * width();
  values_ = PinnedBuffer(room_ * sizeof(float));
}

void TapResults::place(std::span<const int> taps, cudaStream_t stream) {
  check(cudaStreamSynchronize(stream), kWhat);  // no kernel reads the former tables
  taps_.assign(taps.begin(), taps.end());
  constexpr int kEmbedding = -1;
  const auto behind = [&](int tap) { return std::min(tap, layers_) - 1; };  // the layer before
  std::map<int, std::size_t> place_of_layer;
  for (const int tap : taps) place_of_layer.emplace(behind(tap), place_of_layer.size());
  const std::size_t stream_values = kPassRows * hidden_;
  streams_ = DeviceBuffer(place_of_layer.size() * stream_values * sizeof(float), kWhat);
  kept_host_.assign(static_cast<std::size_t>(layers_), nullptr);
  embedding_ = nullptr;
  const auto stream_of = [&](int layer) {
    return streams_.as<float>() + place_of_layer.at(layer) * stream_values;
  };
  for (const auto& [layer, place] : place_of_layer) {
    (layer == kEmbedding ? embedding_ : kept_host_[static_cast<std::size_t>(layer)]) =
        stream_of(layer);
  }
  parts_host_.clear();
  for (const int tap : taps) {
    parts_host_.push_back({stream_of(behind(tap)), tap > layers_ && final_norm_ != nullptr});
  }
  kept_ = DeviceBuffer(kept_host_.size() * sizeof(float*), kWhat);
  parts_ = DeviceBuffer(parts_host_.size() * sizeof(TapPart), kWhat);
  out_ = DeviceBuffer(kPassRows * width() * sizeof(float), kWhat);
  check(cudaDeviceSynchronize(), kWhat);  // the buffers' zeros lie before what follows
  check(cudaMemcpyAsync(kept_.as<void>(), kept_host_.data(), kept_.bytes(), cudaMemcpyHostToDevice,
                        stream),
        kWhat);
  check(cudaMemcpyAsync(parts_.as<void>(), parts_host_.data(), parts_.bytes(),
                        cudaMemcpyHostToDevice, stream),
        kWhat);
}

void TapResults::keep_embedding(int count, const float* residual, cudaStream_t stream) {
  if (embedding_ == nullptr) return;
  check(cudaMemcpyAsync(embedding_, residual,
                        static_cast<std::size_t>(count) * hidden_ * sizeof(float),
                        cudaMemcpyDeviceToDevice, stream),
        kWhat);
}

void TapResults::take(std::size_t first, int count, cudaStream_t stream) {
  if (taps_.empty()) return;
  const dim3 grid(static_cast<unsigned>(taps_.size()), static_cast<unsigned>(count));
  gather<<<grid, kRowThreads, 0, stream>>>(parts_.as<TapPart>(), final_norm_,
                                           static_cast<int>(hidden_), epsilon_, out_.as<float>());
  check(cudaGetLastError(), kWhat);
  check(cudaMemcpyAsync(values_.as<float>() + first * width(), out_.as<void>(),
                        static_cast<std::size_t>(count) * width() * sizeof(float),
                        cudaMemcpyDeviceToHost, stream),
        kWhat);
}

std::span<const float> TapResults::row(std::size_t row) const {
  if (taps_.empty()) throw std::out_of_range("The last forward was not asked for features.");
  if (row >= rows_) {
    throw std::out_of_range("Row " + std::to_string(row) + " of " + std::to_string(rows_) +
                            " does not exist.");
  }
  return {values_.as<float>() + row * width(), width()};
}

}  // namespace specquant::cuda
