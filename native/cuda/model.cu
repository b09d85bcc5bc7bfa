#include "cuda/model.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "core/draft_head.h"
#include "cuda/cache.h"
#include "cuda/device_time.h"
#include "cuda/head_input.h"
#include "cuda/memory.h"
#include "cuda/model_results.h"
#include "cuda/model_weights.h"
#include "cuda/served.h"
#include "cuda/step.h"
#include "cuda/step_buffers.h"
#include "cuda/taps.h"
#include "decode/model_limits.h"

namespace specquant::cuda {
namespace {

// The most tiles, times their slices, of a matrix whose columns are cut into slices.
int sliced_tiles(const WeightSet& set) {
  int most = 1;
  const auto count = [&](const DeviceMatrix* matrix) {
    if (matrix == nullptr || matrix->shape.slices == 1) return;
    most = std::max(most, matrix->shape.tiles * matrix->shape.slices);
  };
  for (const DeviceMatrix* matrix : set.layers) count(matrix);
  count(set.head);
  count(set.feature_fc);
  return most;
}

class CudaModel final : public Model {
 public:
  CudaModel(const ModelOrigin& origin, std::span<const Precision> precisions, int max_batch,
            int max_context);
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
  std::span<const float> features(std::size_t row) const override { return taps_->row(row); }
  std::span<const int32_t> draft_tokens() const override { return results_->draft_tokens(); }
  void compact(int slot, int base, std::span<const int> path) override;
  std::shared_ptr<const void> save(int slot, int length) const override;
  void restore(int slot, const std::shared_ptr<const void>& saved) override;

  double device_seconds() {
    if (!time_) time_.emplace();
    return time_->seconds();
  }

 private:
  // A row on its way, the sequence that it belongs to, and a draft head's feature.
  struct PlacedRow {
    StepRow row;
    int sequence, logit_row;
    std::span<const float> feature;
  };
  // What a pass sends to the device in one copy.
  struct Upload {
    StepRow row[kPassRows];
    RowGroup group[kPassRows];
    int32_t logit_row[kPassRows];
  };

  void collect(std::span<const Rows> batch, LogitRows wanted);
  void pass(Precision precision, const WeightSet& set, std::size_t first, std::size_t count);
  // Sends the rows to the device and returns how many have logits.
  int send(std::span<const PlacedRow> rows, StepArgs& a);
  void start_stream(Precision precision, const WeightSet& set, std::span<const PlacedRow> rows,
                    StepArgs& a);

  const ModelShape shape_;
  const ModelLimits limits_;
  int blocks_ = 0;
  std::size_t pass_rows_ = 0;  // the most of a pass
  cudaStream_t stream_ = nullptr;

  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<ModelResults> results_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<TapResults> taps_;
  std::unique_ptr<HeadInput> head_input_;  // of a draft head
  std::unique_ptr<StepBuffers> buffers_;
  DeviceBuffer upload_, arrivals_;
  PinnedBuffer upload_host_;
  std::optional<DeviceTime> time_;  // where it was asked for

  std::vector<PlacedRow> rows_;
  std::vector<std::span<const float>> features_;  // of a pass
  std::size_t logit_rows_ = 0;
};

// Counters of the grid's barriers in a pass, each zero at its start.
enum Arrivals { kOfLayers, kOfHead, kOfFeatures, kArrivals };

CudaModel::CudaModel(const ModelOrigin& origin, std::span<const Precision> precisions,
                     int max_batch, int max_context)
    : shape_(origin.shape()), limits_(shape_, max_batch, max_context) {
  const DeviceDescription device = describe_device();
  blocks_ = device.multiprocessors;
  pass_rows_ = static_cast<std::size_t>(pass_rows(kernels_of(device.compiled)));
  check_served(origin, blocks_);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  weights_ = std::make_unique<ModelWeights>(origin, device.compiled);
  for (const Precision precision : precisions) weights_->add(precision);
  cache_ = std::make_unique<KvCache>(shape_, max_batch, max_context);
  results_ = std::make_unique<ModelResults>(weights_->head_rows(), origin.draft_tokens());
  taps_ = std::make_unique<TapResults>(shape_, weights_->final_norm());
  if (core::is_draft_head(origin.architecture())) {
    head_input_ = std::make_unique<HeadInput>(origin, *weights_);
  }
  int sliced = 1;
  for (const Precision precision : precisions) {
    sliced = std::max(sliced, sliced_tiles(weights_->set(precision)));
  }
  buffers_ = std::make_unique<StepBuffers>(shape_, head_input_ ? head_input_->widest() : 0, sliced,
                                           max_context, blocks_, origin.rope_scaling());
  arrivals_ = DeviceBuffer(kArrivals * sizeof(unsigned), "buffers");
  upload_ = DeviceBuffer(sizeof(Upload), "buffers");
  upload_host_ = PinnedBuffer(sizeof(Upload));
  check(cudaDeviceSynchronize(), "loading the model");
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
      const std::size_t width = sequence.features.size() / sequence.tokens.size();
      rows_.push_back({row, static_cast<int>(s), take ? logit_row++ : -1,
                       sequence.features.subspan(static_cast<std::size_t>(i) * width, width)});
    }
  }
  logit_rows_ = static_cast<std::size_t>(logit_row);
}

void CudaModel::forward(Precision precision, std::span<const Rows> batch, const Want& want) {
  const WeightSet& weights = weights_->set(precision);
  limits_.check_forward(batch, want, weights_->head_rows());
  collect(batch, want.rows);
  results_->start(logit_rows_, want);
  taps_->start(rows_.size(), want.taps, stream_);
  for (std::size_t first = 0; first < rows_.size(); first += pass_rows_) {
    pass(precision, weights, first, std::min(pass_rows_, rows_.size() - first));
  }
}

void CudaModel::pass(Precision precision, const WeightSet& weights, std::size_t first,
                     std::size_t count) {
  const auto rows = std::span<const PlacedRow>(rows_).subspan(first, count);
  check(cudaStreamSynchronize(stream_), "a forward pass");  // the pinned buffers are free
  StepArgs a{};
  buffers_->describe(a);
  a.weights = weights.table.as<const uint8_t*>();
  a.norms = weights_->norms();
  for (int kind = 0; kind < kMatrixKinds; ++kind) a.shapes[kind] = weights.layers[kind]->shape;
  a.max_positions = cache_->positions();
  a.rows = static_cast<int>(count);
  a.wide_rows = weights.layer_launchers.wide_rows(a.rows);
  a.four_bits = precision == Precision::w4a4;
  a.head_bf16 = weights.head->format == WeightFormat::bf16;
  a.keys = cache_->keys();
  a.values = cache_->values();
  a.arrivals = arrivals_.as<unsigned>() + kOfLayers;
  a.kept = taps_->kept();
  const int logit_rows = send(rows, a);
  if (time_) time_->begin(stream_);
  start_stream(precision, weights, rows, a);
  taps_->keep_embedding(a.rows, buffers_->residual(), stream_);  // wide passes write over it
  check(weights.layer_launchers.step(a, blocks_, stream_), "the layers' kernel");
  taps_->take(first, a.rows, stream_);
  if (logit_rows == 0) {
    check(cudaStreamSynchronize(stream_), "a forward pass");
    return;
  }

  HeadArgs h{};
  h.weights = weights.head->data.as<uint8_t>();
  h.shape = weights.head->shape;
  h.vocabulary = weights_->head_rows();
  h.hidden = shape_.hidden;
  h.rows = a.rows;
  h.wide_rows = a.wide_rows;
  h.epsilon = shape_.norm_epsilon;
  h.hidden_padded = a.hidden_padded;
  h.logit_row = upload_.as<Upload>()->logit_row;
  h.normed = a.normed;
  h.squares = weights_->final_norm() != nullptr ? a.squares : head_input_->unit_squares();
  h.codes = a.codes;
  h.scales = a.scales;
  h.logits = results_->device_logits();
  h.arrivals = arrivals_.as<unsigned>() + kOfHead;
  h.exchange = a.exchange;
  check(weights.head_launchers.head(h, blocks_, stream_), "the head's kernel");
  const auto* first_logit =
      &*std::ranges::find_if(rows, [](const PlacedRow& row) { return row.logit_row >= 0; });
  results_->take(first_logit->logit_row, logit_rows, stream_, time_ ? &*time_ : nullptr);
}

int CudaModel::send(std::span<const PlacedRow> rows, StepArgs& a) {
  auto& upload = *upload_host_.as<Upload>();
  const int together = kQueries / (shape_.heads / shape_.kv_heads);
  int groups = 0, logit_rows = 0;
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
    upload.logit_row[i] = placed.logit_row >= 0 ? logit_rows++ : -1;
  }
  check(
      cudaMemcpyAsync(upload_.as<void>(), &upload, sizeof upload, cudaMemcpyHostToDevice, stream_),
      "a forward pass");
  check(cudaMemsetAsync(arrivals_.as<void>(), 0, arrivals_.bytes(), stream_), "a forward pass");
  a.groups = groups;
  a.row = upload_.as<Upload>()->row;
  a.group = upload_.as<Upload>()->group;
  return logit_rows;
}

void CudaModel::start_stream(Precision precision, const WeightSet& weights,
                             std::span<const PlacedRow> rows, StepArgs& a) {
  const bool bf16 = precision == Precision::bf16;
  if (!head_input_) {
    check(launch_embed(*weights.embedding, a.rows, a.norms, bf16, a, buffers_->residual(), stream_),
          "the embedding");
    return;
  }
  features_.clear();
  for (const PlacedRow& row : rows) features_.push_back(row.feature);
  head_input_->start(features_, weights, bf16, blocks_, arrivals_.as<unsigned>() + kOfFeatures,
                     buffers_->residual(), a, stream_);
}

void CudaModel::compact(int slot, int base, std::span<const int> path) {
  limits_.check_path(slot, base, path);
  if (path.empty()) return;
  cache_->compact(slot, base, path, stream_);
}

std::shared_ptr<const void> CudaModel::save(int slot, int length) const {
  limits_.check_slot(slot, length);
  return cache_->save(slot, length, stream_);
}

void CudaModel::restore(int slot, const std::shared_ptr<const void>& saved) {
  limits_.check_slot(slot, 0);
  cache_->restore(slot, saved, stream_);
}

}  // namespace

std::unique_ptr<Model> make_cuda_model(const core::PackedFile& file,
                                       std::span<const Precision> precisions, int max_batch,
                                       int max_context, const core::PackedFile* target) {
  core::check_target(file, target);
  return std::make_unique<CudaModel>(ModelOrigin{&file, target}, precisions, max_batch,
                                     max_context);
}

std::unique_ptr<Model> make_cuda_model(const core::SyntheticModel& synthetic,
                                       std::span<const Precision> precisions, int max_batch,
                                       int max_context) {
  return std::make_unique<CudaModel>(ModelOrigin{nullptr, nullptr, synthetic}, precisions,
                                     max_batch, max_context);
}

double device_seconds(Model& model) { return dynamic_cast<CudaModel&>(model).device_seconds(); }

}  // namespace specquant::cuda
