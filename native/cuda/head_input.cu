#include "cuda/head_input.h"

#include <algorithm>
#include <vector>

#include "cuda/activations.cuh"
#include "cuda/row_sum.cuh"

namespace specquant::cuda {
namespace {

constexpr const char* kWhat = "a draft head's input";
constexpr std::size_t kFloats = kPassRows * sizeof(float);
constexpr std::size_t kHalves = kPassRows * sizeof(uint16_t);

// One block a row that fc multiplies: [embedding;] feature.
__global__ void fc_input(const float* embedded, const float* features, const int32_t* feature,
                         const int32_t* source, int embedding_columns, int columns, int wide_rows,
                         bool bf16, uint16_t* out) {
  const int row = source[blockIdx.x];
  const float* own = features + feature[row] - embedding_columns;
  const float* embedding = embedded + static_cast<size_t>(row) * embedding_columns;
  for (int i = static_cast<int>(threadIdx.x); i < columns; i += kRowThreads) {
    out[activation_index(static_cast<int>(blockIdx.x), i, wide_rows)] =
        to_16_bits(i < embedding_columns ? embedding[i] : own[i], bf16);
  }
}

struct StreamArgs {
  const float* features;
  const int32_t* feature;
  const int32_t* fused_row;
  const float* fused;
  const float* bias;        // of fc; null: none
  const float* first_norm;  // null: none
  const float* embedded;    // in front of the stream in the first product; null: not there
  const float* embed_norm;
  bool norm_before_residual, bf16;
  int hidden, wide_rows;
  float epsilon, unit_square;
  float* residual;
  float* squares;
  uint16_t* first;
};

// One block a row: the residual stream, the first product's input, whole, and the sums of squares
// that say so.
__global__ void start_stream(const StreamArgs a) {
  const auto row = static_cast<int>(blockIdx.x);
  const int fused = a.fused_row[row];
  const float* from =
      fused < 0 ? a.features + a.feature[row] : a.fused + static_cast<size_t>(fused) * a.hidden;
  const auto value = [&](int i) { return from[i] + (a.bias == nullptr ? 0.0F : a.bias[i]); };
  const auto put = [&](int column, float x) {
    a.first[activation_index(row, column, a.wide_rows)] = to_16_bits(x, a.bf16);
  };
  float scale = 1.0F;
  if (a.first_norm != nullptr) scale = inverse_rms_of(a.hidden, a.epsilon, value);
  int behind = 0;
  if (a.embedded != nullptr) {
    const float* embedding = a.embedded + static_cast<size_t>(row) * a.hidden;
    const float own = inverse_rms_of(a.hidden, a.epsilon, [&](int i) { return embedding[i]; });
    for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += kRowThreads) {
      put(i, embedding[i] * own * a.embed_norm[i]);
    }
    behind = a.hidden;
  }
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += kRowThreads) {
    const float stream = value(i);
    const float normed = a.first_norm == nullptr ? stream : stream * scale * a.first_norm[i];
    a.residual[static_cast<size_t>(row) * a.hidden + i] = a.norm_before_residual ? normed : stream;
    put(behind + i, normed);
  }
  const int count = a.hidden / kTileRows;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kRowThreads) {
    a.squares[static_cast<size_t>(row) * count + i] = a.unit_square;
  }
}

// So that the root mean square with epsilon is 1.
float unit_square(float epsilon) { return static_cast<float>(kTileRows) * (1.0F - epsilon); }

}  // namespace

HeadInput::HeadInput(const ModelOrigin& origin, const ModelWeights& weights)
    : joins_(origin.architecture() == core::Architecture::eagle2),
      norm_before_residual_(origin.norm_before_residual()),
      hidden_(origin.shape().hidden),
      feature_width_(origin.shape().feature_width),
      fc_columns_(padded_columns(joins_ ? 2 * hidden_ : feature_width_)),
      first_columns_(padded_columns(joins_ ? hidden_ : 2 * hidden_)),
      weights_(weights),
      upload_(sizeof(Upload) + kFloats * std::max(hidden_, feature_width_), kWhat),
      embedded_(kFloats * hidden_, kWhat),
      fc_input_(kHalves * fc_columns_, kWhat),
      fused_(kFloats * hidden_, kWhat),
      first_(joins_ ? 0 : kHalves * first_columns_, kWhat),
      unit_squares_(kFloats * (std::max(fc_columns_, hidden_) / kTileRows), kWhat),
      upload_host_(upload_.bytes()) {
  const std::vector<float> squares(unit_squares_.bytes() / sizeof(float),
                                   unit_square(origin.shape().norm_epsilon));
  check(cudaMemcpy(unit_squares_.as<void>(), squares.data(), unit_squares_.bytes(),
                   cudaMemcpyHostToDevice),
        kWhat);
}

// Returns the number of rows that fc multiplies.
int HeadInput::send(std::span<const std::span<const float>> features, cudaStream_t stream) {
  auto& upload = *upload_host_.as<Upload>();
  auto* values = reinterpret_cast<float*>(upload_host_.as<Upload>() + 1);
  int sent = 0, fused = 0;
  for (std::size_t row = 0; row < features.size(); ++row) {
    upload.feature[row] = sent;
    std::ranges::copy(features[row], values + sent);
    sent += static_cast<int>(features[row].size());
    const bool fuses = joins_ || static_cast<int>(features[row].size()) == feature_width_;
    upload.fused[row] = fuses ? fused : -1;
    if (fuses) upload.source[fused++] = static_cast<int32_t>(row);
  }
  check(cudaMemcpyAsync(upload_.as<void>(), &upload, sizeof(Upload) + sent * sizeof(float),
                        cudaMemcpyHostToDevice, stream),
        kWhat);
  return fused;
}

void HeadInput::start(std::span<const std::span<const float>> features, const WeightSet& weights,
                      bool bf16, int blocks, unsigned* arrivals, float* residual, StepArgs& a,
                      cudaStream_t stream) {
  const int fused = send(features, stream);
  const auto* upload = upload_.as<Upload>();
  const auto* values = reinterpret_cast<const float*>(upload + 1);
  check(launch_embed(*weights.embedding, a.rows, a.norms, bf16, a, embedded_.as<float>(), stream),
        kWhat);
  if (fused > 0) {
    const DeviceMatrix& fc = *weights.feature_fc;
    const int wide_rows = weights.fc_launchers.wide_rows(fused);
    fc_input<<<static_cast<unsigned>(fused), kRowThreads, 0, stream>>>(
        embedded_.as<float>(), values, upload->feature, upload->source, joins_ ? hidden_ : 0,
        fc.shape.columns, wide_rows, fc.format == WeightFormat::bf16, fc_input_.as<uint16_t>());
    check(cudaGetLastError(), kWhat);
    HeadArgs h{};
    h.weights = fc.data.as<uint8_t>();
    h.shape = fc.shape;
    h.vocabulary = hidden_;
    h.hidden = fc.shape.columns;
    h.rows = fused;
    h.wide_rows = wide_rows;
    h.epsilon = a.epsilon;
    h.hidden_padded = fc_columns_;
    h.normed = fc_input_.as<uint16_t>();
    h.squares = unit_squares();
    h.codes = a.codes;
    h.scales = a.scales;
    h.logits = fused_.as<float>();
    h.arrivals = arrivals;
    h.exchange = a.exchange;
    check(weights.fc_launchers.head(h, blocks, stream), kWhat);
  }
  if (!joins_) {
    a.first = first_.as<uint16_t>();
    a.first_padded = first_columns_;
  }
  StreamArgs s{};
  s.features = values;
  s.feature = upload->feature;
  s.fused_row = upload->fused;
  s.fused = fused_.as<float>();
  s.bias = weights_.fc_bias();
  s.first_norm = weights_.first_norm();
  s.embedded = joins_ ? nullptr : embedded_.as<float>();
  s.embed_norm = weights_.embed_norm();
  s.norm_before_residual = norm_before_residual_;
  s.bf16 = bf16;
  s.hidden = hidden_;
  s.wide_rows = a.wide_rows;
  s.epsilon = a.epsilon;
  s.unit_square = unit_square(a.epsilon);
  s.residual = residual;
  s.squares = a.squares;
  s.first = joins_ ? a.normed : first_.as<uint16_t>();
  start_stream<<<static_cast<unsigned>(a.rows), kRowThreads, 0, stream>>>(s);
  check(cudaGetLastError(), kWhat);
}

}  // namespace specquant::cuda
