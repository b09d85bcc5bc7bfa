#include "cuda/model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <stdexcept>

#include "core/errors.h"
#include "core/rotary.h"
#include "cuda/cache.h"
#include "cuda/device_time.h"
#include "cuda/memory.h"
#include "cuda/model_results.h"
#include "cuda/model_weights.h"
#include "cuda/served.h"
#include "cuda/step.h"

namespace specquant::cuda {
namespace {

using core::Error;
using core::ErrorType;
using core::TensorKind;

// Columns of a row of activations: whole stages of weights, zeros behind the last.
int padded(int columns) { return (columns + 127) / 128 * 128; }

class CudaModel final : public Model {
 public:
  CudaModel(const core::PackedFile* file, const core::SyntheticModel& synthetic,
            std::span<const Precision> precisions, int max_batch, int max_context);
  ~CudaModel() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  const ModelShape& shape() const override { return shape_; }
  MemoryUse memory() const override {
    return {weights_->bytes_by_kind(), static_cast<int64_t>(cache_->bytes())};
  }
  Proof proof(Precision precision) const override { return weights_->proof(precision); }
  void forward(Precision precision, std::span<const Rows> batch, const Want& want) override;
  std::span<const TopEntry> top(std::size_t row) const override { return results_->top(row); }
  float log_sum(std::size_t row) const override { return results_->log_sum(row); }
  std::span<const float> logits(std::size_t row) const override { return results_->logits(row); }
  void compact(int slot, int base, std::span<const int> path) override;
  std::shared_ptr<const void> save(int slot, int length) const override;
  void restore(int slot, const std::shared_ptr<const void>& saved) override;

  double device_seconds() {
    if (!time_) time_.emplace();
    return time_->seconds();
  }

 private:
  // A row on its way, and the sequence that it belongs to.
  struct PlacedRow {
    StepRow row;
    int sequence, logit_row;
  };
  // What a pass sends to the device in one copy.
  struct Upload {
    StepRow row[kStepRows];
    RowGroup group[kStepRows];
    int32_t logit_row[kStepRows];
  };

  void make_buffers(const core::RopeScaling& scaling);
  void check_slot(int slot, int length) const;
  void collect(std::span<const Rows> batch, LogitRows wanted);
  void pass(Precision precision, const WeightSet& set, std::span<const PlacedRow> rows);

  const ModelShape shape_;
  const int max_batch_, max_context_;
  int blocks_ = 0;
  cudaStream_t stream_ = nullptr;

  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<ModelResults> results_;
  std::unique_ptr<KvCache> cache_;
  DeviceBuffer rotary_, upload_, residual_, squares_, normed_, query_, attention_, mlp_, codes_,
      scales_;
  DeviceBuffer arrivals_;
  PinnedBuffer upload_host_;
  std::optional<DeviceTime> time_;  // where it was asked for

  std::vector<PlacedRow> rows_;
  std::size_t logit_rows_ = 0;
};

CudaModel::CudaModel(const core::PackedFile* file, const core::SyntheticModel& synthetic,
                     std::span<const Precision> precisions, int max_batch, int max_context)
    : shape_(file != nullptr ? file->shape() : synthetic.shape),
      max_batch_(max_batch),
      max_context_(max_context) {
  if (max_batch < 1 || max_context < 1) {
    throw Error(ErrorType::bad_request, "max_batch and max_context must be at least 1.");
  }
  describe_device();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's properties");
  blocks_ = properties.multiProcessorCount;
  if (file != nullptr) {
    check_served(*file, blocks_);
  } else {
    check_served(synthetic.name, shape_, blocks_);
  }
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  weights_ = std::make_unique<ModelWeights>(file, synthetic);
  for (const Precision precision : precisions) weights_->add(precision);
  cache_ = std::make_unique<KvCache>(shape_, max_batch, max_context);
  results_ = std::make_unique<ModelResults>(shape_.vocabulary);
  make_buffers(file != nullptr ? file->metadata().rope_scaling : core::RopeScaling{});
  check(cudaDeviceSynchronize(), "loading the model");
}

void CudaModel::make_buffers(const core::RopeScaling& scaling) {
  const char* what = "buffers";
  const std::size_t floats = kStepRows * sizeof(float);
  const std::size_t width = static_cast<std::size_t>(shape_.heads) * shape_.head_dim;
  residual_ = DeviceBuffer(floats * shape_.hidden, what);
  squares_ = DeviceBuffer(floats * (shape_.hidden / kTileRows), what);
  const std::size_t halves = kStepRows * sizeof(uint16_t);
  normed_ = DeviceBuffer(halves * padded(shape_.hidden), what);
  query_ = DeviceBuffer(halves * width, what);
  attention_ = DeviceBuffer(halves * padded(static_cast<int>(width)), what);
  mlp_ = DeviceBuffer(halves * padded(shape_.intermediate), what);
  const std::size_t widest =
      padded(std::max({shape_.hidden, static_cast<int>(width), shape_.intermediate}));
  codes_ = DeviceBuffer(kStepRows * widest, what);
  scales_ = DeviceBuffer(floats * (widest / 32), what);
  arrivals_ = DeviceBuffer(2 * sizeof(unsigned), what);  // of the layers, of the head
  upload_ = DeviceBuffer(sizeof(Upload), what);
  upload_host_ = PinnedBuffer(sizeof(Upload));
  const auto pairs = static_cast<std::size_t>(shape_.head_dim / 2);
  const std::vector<double> frequencies =
      core::rotary_frequencies(shape_.head_dim, shape_.rope_theta, scaling);
  std::vector<float2> rotary(pairs * max_context_);
  for (int position = 0; position < max_context_; ++position) {
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const double angle = position * frequencies[pair];
      rotary[position * pairs + pair] = {static_cast<float>(std::cos(angle)),
                                         static_cast<float>(std::sin(angle))};
    }
  }
  rotary_ = DeviceBuffer(rotary.size() * sizeof(float2), what);
  check(cudaMemcpy(rotary_.as<void>(), rotary.data(), rotary_.bytes(), cudaMemcpyHostToDevice),
        what);
}

void CudaModel::collect(std::span<const Rows> batch, LogitRows wanted) {
  rows_.clear();
  int logit_row = 0;
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const Rows& sequence = batch[s];
    const auto count = static_cast<int>(sequence.tokens.size());
    for (int i = 0; i < count; ++i) {
      StepRow row{};
      row.slot = sequence.slot;
      row.token = sequence.tokens[static_cast<std::size_t>(i)];
      row.cache_index = sequence.base + i;
      if (sequence.ancestors.empty()) {
        row.prefix = row.visible = row.cache_index + 1;
      } else {
        row.ancestors = sequence.ancestors[static_cast<std::size_t>(i)];
        row.prefix = sequence.trunk < 0 ? sequence.base : sequence.trunk;
        row.visible = row.prefix + std::popcount(row.ancestors);
      }
      row.position = row.visible - 1;
      const bool take = wanted == LogitRows::all || (wanted == LogitRows::last && i == count - 1);
      rows_.push_back({row, static_cast<int>(s), take ? logit_row++ : -1});
    }
  }
  logit_rows_ = static_cast<std::size_t>(logit_row);
}

void CudaModel::forward(Precision precision, std::span<const Rows> batch, const Want& want) {
  const WeightSet& weights = weights_->set(precision);
  validate(batch, max_batch_, max_context_, shape_.vocabulary);
  if (!want.taps.empty()) {
    throw std::invalid_argument("The CUDA engine leaves no hidden states (taps) yet.");
  }
  if (want.top_k < 0 || want.top_k > shape_.vocabulary) {
    throw std::invalid_argument("top_k must be between 0 and the vocabulary's " +
                                std::to_string(shape_.vocabulary) + ".");
  }
  collect(batch, want.rows);
  results_->start(logit_rows_, want);
  const std::span<const PlacedRow> rows(rows_);
  const auto most =
      static_cast<std::size_t>(std::min(weights.layer_launchers.rows, weights.head_launchers.rows));
  for (std::size_t first = 0; first < rows.size(); first += most) {
    pass(precision, weights, rows.subspan(first, std::min(most, rows.size() - first)));
  }
}

void CudaModel::pass(Precision precision, const WeightSet& weights,
                     std::span<const PlacedRow> rows) {
  check(cudaStreamSynchronize(stream_), "a forward pass");  // the pinned buffers are free
  auto& upload = *upload_host_.as<Upload>();
  const int together = kQueries / (shape_.heads / shape_.kv_heads);
  int groups = 0, logit_rows = 0, first_logit = -1;
  for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
    const PlacedRow& placed = rows[static_cast<std::size_t>(i)];
    upload.row[i] = placed.row;
    const bool joins = i > 0 && rows[i - 1].sequence == placed.sequence &&
                       placed.row.ancestors == 0 && upload.group[groups - 1].count < together;
    if (joins) {
      ++upload.group[groups - 1].count;
    } else {
      upload.group[groups++] = {i, 1};
    }
    if (placed.logit_row >= 0) {
      if (first_logit < 0) first_logit = placed.logit_row;
      upload.logit_row[logit_rows++] = i;
    }
  }
  check(
      cudaMemcpyAsync(upload_.as<void>(), &upload, sizeof upload, cudaMemcpyHostToDevice, stream_),
      "a forward pass");
  check(cudaMemsetAsync(arrivals_.as<void>(), 0, arrivals_.bytes(), stream_), "a forward pass");
  auto* device = upload_.as<Upload>();
  StepArgs a{};
  a.weights = weights.table.as<const uint8_t*>();
  a.norms = weights_->norms();
  for (int kind = 0; kind < kMatrixKinds; ++kind) a.shapes[kind] = weights.layers[kind]->shape;
  a.layers = shape_.layers;
  a.hidden = shape_.hidden;
  a.intermediate = shape_.intermediate;
  a.heads = shape_.heads;
  a.kv_heads = shape_.kv_heads;
  a.head_dim = shape_.head_dim;
  a.max_positions = cache_->positions();
  a.rows = static_cast<int>(rows.size());
  a.groups = groups;
  a.hidden_stride = padded(shape_.hidden);
  a.attention_stride = padded(shape_.heads * shape_.head_dim);
  a.intermediate_stride = padded(shape_.intermediate);
  a.four_bits = precision == Precision::w4a4;
  a.head_bf16 = weights.head->format == WeightFormat::bf16;
  a.epsilon = shape_.norm_epsilon;
  a.row = device->row;
  a.group = device->group;
  a.first = normed_.as<uint16_t>();
  a.first_stride = a.hidden_stride;
  a.rotary = rotary_.as<float2>();
  a.residual = residual_.as<float>();
  a.squares = squares_.as<float>();
  a.normed = normed_.as<uint16_t>();
  a.query = query_.as<__half>();
  a.attention = attention_.as<uint16_t>();
  a.mlp = mlp_.as<uint16_t>();
  a.codes = codes_.as<int8_t>();
  a.scales = scales_.as<float>();
  a.keys = cache_->keys();
  a.values = cache_->values();
  a.arrivals = arrivals_.as<unsigned>();
  check(launch_embed(*weights.embedding, a.rows, a.norms, precision == Precision::bf16, a,
                     residual_.as<float>(), stream_),
        "the embedding");
  if (time_) time_->begin(stream_);
  check(weights.layer_launchers.step(a, blocks_, stream_), "the layers' kernel");
  if (logit_rows == 0) {
    check(cudaStreamSynchronize(stream_), "a forward pass");
    return;
  }

  HeadArgs h{};
  h.weights = weights.head->data.as<uint8_t>();
  h.shape = weights.head->shape;
  h.vocabulary = shape_.vocabulary;
  h.hidden = shape_.hidden;
  h.rows = logit_rows;
  h.epsilon = shape_.norm_epsilon;
  h.hidden_stride = a.hidden_stride;
  h.row = device->logit_row;
  h.normed = a.normed;
  h.squares = a.squares;
  h.codes = a.codes;
  h.scales = a.scales;
  h.logits = results_->device_logits();
  h.arrivals = arrivals_.as<unsigned>() + 1;
  check(weights.head_launchers.head(h, blocks_, stream_), "the head's kernel");
  results_->take(first_logit, logit_rows, stream_, time_ ? &*time_ : nullptr);
}

void CudaModel::check_slot(int slot, int length) const {
  if (slot < 0 || slot >= max_batch_) {
    throw std::invalid_argument("Slot " + std::to_string(slot) + " is not among the " +
                                std::to_string(max_batch_) + " slots.");
  }
  if (length < 0 || length > max_context_) {
    throw std::invalid_argument("A slot holds 0 to " + std::to_string(max_context_) +
                                " tokens, not " + std::to_string(length) + ".");
  }
}

void CudaModel::compact(int slot, int base, std::span<const int> path) {
  check_slot(slot, base);
  int before = -1;
  for (const int step : path) {
    if (step <= before) throw std::invalid_argument("The path to keep does not rise.");
    before = step;
  }
  if (path.empty()) return;
  check_slot(slot, base + path.back() + 1);
  cache_->compact(slot, base, path, stream_);
}

std::shared_ptr<const void> CudaModel::save(int slot, int length) const {
  check_slot(slot, length);
  return cache_->save(slot, length, stream_);
}

void CudaModel::restore(int slot, const std::shared_ptr<const void>& saved) {
  check_slot(slot, 0);
  cache_->restore(slot, saved, stream_);
}

}  // namespace

std::unique_ptr<Model> make_cuda_model(const core::PackedFile& file,
                                       std::span<const Precision> precisions, int max_batch,
                                       int max_context) {
  return std::make_unique<CudaModel>(&file, core::SyntheticModel{}, precisions, max_batch,
                                     max_context);
}

std::unique_ptr<Model> make_cuda_model(const core::SyntheticModel& synthetic,
                                       std::span<const Precision> precisions, int max_batch,
                                       int max_context) {
  return std::make_unique<CudaModel>(nullptr, synthetic, precisions, max_batch, max_context);
}

double device_seconds(Model& model) { return dynamic_cast<CudaModel&>(model).device_seconds(); }

}  // namespace specquant::cuda
