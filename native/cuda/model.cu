#include "cuda/model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>

#include "core/errors.h"
#include "cuda/cache.h"
#include "cuda/memory.h"
#include "cuda/results.h"
#include "cuda/step.h"
#include "cuda/weights.h"

namespace specquant::cuda {
namespace {

using core::Error;
using core::ErrorType;
using core::TensorKind;

// Columns of a row of activations: whole stages of weights, zeros behind the last.
int padded(int columns) { return (columns + 127) / 128 * 128; }

// Activations of the layers are 8-bit integers (or 4-bit ones in the same range).
bool integer_inputs(Precision precision) {
  return precision == Precision::w8a8 || precision == Precision::w4a8 ||
         precision == Precision::w4a4;
}
// The head is where a rounding error reaches the logits directly, so w4a4 gives it 16 bits.
bool integer_head(Precision precision, WeightFormat format) {
  const bool floats = format == WeightFormat::f16 || format == WeightFormat::bf16;
  return !floats && (precision == Precision::w8a8 || precision == Precision::w4a8);
}

Launchers launchers_for(WeightFormat format, bool integers) {
  switch (format) {
    case WeightFormat::f16:
      return launchers_f16();
    case WeightFormat::bf16:
      return launchers_bf16();
    case WeightFormat::affine8:
      return integers ? launchers_affine8_s8() : launchers_affine8_f16();
    case WeightFormat::affine4_g32:
      return integers ? launchers_affine4_g32_s8() : launchers_affine4_g32_f16();
    case WeightFormat::affine4_g128:
      return integers ? launchers_affine4_g128_s8() : launchers_affine4_g128_f16();
  }
  return {};
}

std::string kernel_name(WeightFormat format, bool integers) {
  const bool bf16 = format == WeightFormat::bf16;
  return std::string(name_of(format)) + " x " +
         (integers ? "i8"
          : bf16   ? "bf16"
                   : "f16") +
         (integers ? ", mma.m16n8k32 int8"
          : bf16   ? ", mma.m16n8k16 bf16"
                   : ", mma.m16n8k16 f16") +
         ", sm_90";
}

// The weights that one precision reads.
struct WeightSet {
  std::vector<const DeviceMatrix*> layers;  // [layer][kind]
  const DeviceMatrix* embedding = nullptr;
  const DeviceMatrix* head = nullptr;
  DeviceBuffer table;  // of the layers' addresses
  Launchers layer_launchers, head_launchers;
};

constexpr const char* kParts[kMatrixKinds] = {"qkv", "o", "gate_up", "down"};

class CudaModel final : public Model {
 public:
  CudaModel(const core::PackedFile* file, const core::SyntheticModel& synthetic,
            std::span<const Precision> precisions, int max_batch, int max_context);
  ~CudaModel() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  const ModelShape& shape() const override { return shape_; }
  MemoryUse memory() const override;
  Proof proof(Precision precision) const override;
  void forward(Precision precision, std::span<const Rows> batch, const Want& want) override;
  std::span<const TopEntry> top(std::size_t row) const override;
  float log_sum(std::size_t row) const override;
  std::span<const float> logits(std::size_t row) const override;
  void compact(int slot, int base, std::span<const int> path) override;
  std::shared_ptr<const void> save(int slot, int length) const override;
  void restore(int slot, const std::shared_ptr<const void>& saved) override;

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

  void check_shape() const;
  void build(Precision precision);
  const DeviceMatrix& place(const std::string& tensor, int rows, int columns, WeightFormat format);
  WeightFormat layer_format(Precision precision) const;
  WeightFormat vocabulary_format(Precision precision, const std::string& tensor) const;
  void place_norms();
  void make_buffers();
  const WeightSet& set(Precision precision) const;
  void check_slot(int slot, int length) const;
  void collect(std::span<const Rows> batch, LogitRows wanted);
  void pass(Precision precision, const WeightSet& set, std::span<const PlacedRow> rows,
            const Want& want);
  void take_results(int first, int count, const Want& want);

  const core::PackedFile* file_;
  const core::SyntheticModel synthetic_;
  const ModelShape shape_;
  const int max_batch_, max_context_;
  int blocks_ = 0;
  cudaStream_t stream_ = nullptr;

  std::map<std::string, DeviceMatrix> matrices_;  // by tensor and format
  DeviceBuffer norms_;
  std::map<Precision, WeightSet> sets_;
  std::unique_ptr<KvCache> cache_;
  DeviceBuffer rotary_, upload_, residual_, squares_, normed_, query_, attention_, mlp_, codes_,
      scales_;
  DeviceBuffer arrivals_, logits_device_, entries_, sums_, top_device_, log_sums_device_;
  PinnedBuffer upload_host_, top_host_, log_sums_host_;

  std::vector<PlacedRow> rows_;
  Want want_;
  std::vector<TopEntry> top_;
  std::vector<float> log_sums_, logits_;
  std::size_t logit_rows_ = 0;
};

CudaModel::CudaModel(const core::PackedFile* file, const core::SyntheticModel& synthetic,
                     std::span<const Precision> precisions, int max_batch, int max_context)
    : file_(file),
      synthetic_(synthetic),
      shape_(file != nullptr ? file->shape() : synthetic.shape),
      max_batch_(max_batch),
      max_context_(max_context) {
  if (max_batch < 1 || max_context < 1) {
    throw Error(ErrorType::bad_request, "max_batch and max_context must be at least 1.");
  }
  describe_device();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's properties");
  blocks_ = properties.multiProcessorCount;
  check_shape();
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  place_norms();
  for (const Precision precision : precisions) {
    if (!sets_.contains(precision)) build(precision);
  }
  cache_ = std::make_unique<KvCache>(shape_, max_batch, max_context);
  make_buffers();
  check(cudaDeviceSynchronize(), "loading the model");
}

void CudaModel::check_shape() const {
  const std::string name = file_ != nullptr ? file_->name() : "synthetic";
  if (shape_.head_dim != 64 && shape_.head_dim != 128) {
    throw Error(ErrorType::model, "Model " + name + ": tensor 'layers.0.qkv' has heads of " +
                                      std::to_string(shape_.head_dim) +
                                      " dimensions; the CUDA engine has kernels for 64 and 128.");
  }
  if (shape_.heads / shape_.kv_heads > kQueries) {
    throw Error(ErrorType::model,
                "Model " + name +
                    " has more than 8 query heads for a key-value head, which the CUDA "
                    "engine has no kernel for.");
  }
  if (shape_.hidden > kResidualTiles * kTileRows * blocks_) {
    throw Error(ErrorType::model,
                "Model " + name + " has a hidden size of " + std::to_string(shape_.hidden) +
                    "; the CUDA engine serves up to " +
                    std::to_string(kResidualTiles * kTileRows * blocks_) + " on this GPU.");
  }
  if (shape_.intermediate % 16 != 0) {
    throw Error(ErrorType::model, "Model " + name +
                                      ": the CUDA engine needs an intermediate size that "
                                      "is a multiple of 16.");
  }
}

void CudaModel::place_norms() {
  std::vector<std::string> names;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    names.push_back(prefix + "attn_norm");
    names.push_back(prefix + "mlp_norm");
  }
  names.emplace_back("final_norm");
  const auto hidden = static_cast<std::size_t>(shape_.hidden);
  std::vector<float> values(names.size() * hidden, 1.0F);
  for (std::size_t i = 0; file_ != nullptr && i < names.size(); ++i) {
    std::ranges::copy(file_->tensor(names[i]).floats(), values.data() + i * hidden);
  }
  norms_ = DeviceBuffer(values.size() * sizeof(float), "norms");
  check(cudaMemcpy(norms_.as<void>(), values.data(), norms_.bytes(), cudaMemcpyHostToDevice),
        "norms");
}

WeightFormat CudaModel::layer_format(Precision precision) const {
  if (precision == Precision::fp16) return WeightFormat::f16;
  if (precision == Precision::bf16) return WeightFormat::bf16;
  const bool eight = precision == Precision::w8a8;
  if (file_ == nullptr) return eight ? WeightFormat::affine8 : WeightFormat::affine4_g128;
  bool wide = true;  // every group is 128 columns
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (const char* part : kParts) {
      const core::TensorView& tensor = file_->layer_tensor(layer, part);
      if (tensor.kind != (eight ? TensorKind::affine8 : TensorKind::affine4)) {
        throw Error(ErrorType::unsupported,
                    "Precision " + std::string(specquant::name_of(precision)) + " needs " +
                        (eight ? "8-bit weights (affine8)" : "4-bit weights (affine4)") +
                        ", but tensor '" + tensor.name + "' is stored as " +
                        core::name_of(tensor.kind) +
                        ". Choose a precision that the file serves, or pack the checkpoint again.");
      }
      wide = wide && tensor.group == 128;
    }
  }
  if (eight) return WeightFormat::affine8;
  return wide ? WeightFormat::affine4_g128 : WeightFormat::affine4_g32;
}

WeightFormat CudaModel::vocabulary_format(Precision precision, const std::string& name) const {
  if (precision == Precision::bf16) return WeightFormat::bf16;
  if (precision == Precision::fp16 || file_ == nullptr) return WeightFormat::f16;
  const core::TensorView& tensor = file_->tensor(name);
  switch (tensor.kind) {
    case TensorKind::affine4:
      return tensor.group == 128 ? WeightFormat::affine4_g128 : WeightFormat::affine4_g32;
    case TensorKind::affine8:
      return WeightFormat::affine8;
    case TensorKind::bf16:
      return WeightFormat::bf16;
    case TensorKind::affine4z:  // no kernel has zero points; 16 bits keep them
    case TensorKind::f16:
    case TensorKind::f32:
    case TensorKind::i32:
      break;
  }
  return WeightFormat::f16;
}

const DeviceMatrix& CudaModel::place(const std::string& tensor, int rows, int columns,
                                     WeightFormat format) {
  const std::string key = tensor + " as " + name_of(format);
  const auto found = matrices_.find(key);
  if (found != matrices_.end()) return found->second;
  MatrixOrigin origin;
  origin.rows = rows;
  origin.columns = columns;
  origin.gate_up = tensor.ends_with("gate_up");
  if (file_ != nullptr) {
    origin.tensor = &file_->tensor(tensor);
  } else {
    origin.seed = synthetic_.seed;
    for (const char letter : tensor)
      origin.seed = origin.seed * 1099511628211ULL ^ static_cast<uint8_t>(letter);
  }
  return matrices_.emplace(key, place_matrix(origin, format, "weights")).first->second;
}

void CudaModel::build(Precision precision) {
  WeightSet set;
  const WeightFormat format = layer_format(precision);
  const int width = shape_.heads * shape_.head_dim;
  const int rows[kMatrixKinds] = {width + 2 * shape_.kv_heads * shape_.head_dim, shape_.hidden,
                                  2 * shape_.intermediate, shape_.hidden};
  const int columns[kMatrixKinds] = {shape_.hidden, width, shape_.hidden, shape_.intermediate};
  std::vector<const uint8_t*> table;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (int kind = 0; kind < kMatrixKinds; ++kind) {
      const std::string name = "layers." + std::to_string(layer) + "." + kParts[kind];
      set.layers.push_back(&place(name, rows[kind], columns[kind], format));
      table.push_back(set.layers.back()->data.as<uint8_t>());
    }
  }
  const std::string embedding = shape_.tied_head ? "head" : "embed";
  set.head = &place("head", shape_.vocabulary, shape_.hidden, vocabulary_format(precision, "head"));
  set.embedding =
      &place(embedding, shape_.vocabulary, shape_.hidden, vocabulary_format(precision, embedding));
  set.table = DeviceBuffer(table.size() * sizeof table[0], "weights");
  check(cudaMemcpy(set.table.as<void>(), table.data(), set.table.bytes(), cudaMemcpyHostToDevice),
        "weights");
  set.layer_launchers = launchers_for(format, integer_inputs(precision));
  set.head_launchers = launchers_for(set.head->format, integer_head(precision, set.head->format));
  sets_.emplace(precision, std::move(set));
}

void CudaModel::make_buffers() {
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
  logits_device_ = DeviceBuffer(floats * shape_.vocabulary, what);
  entries_ =
      DeviceBuffer(std::size_t{kStepRows} * kLogitChunks * kDeviceTopK * sizeof(TopEntry), what);
  sums_ = DeviceBuffer(std::size_t{kStepRows} * kLogitChunks * sizeof(LogitSum), what);
  top_device_ = DeviceBuffer(std::size_t{kStepRows} * kDeviceTopK * sizeof(TopEntry), what);
  top_host_ = PinnedBuffer(top_device_.bytes());
  log_sums_device_ = DeviceBuffer(floats, what);
  log_sums_host_ = PinnedBuffer(floats);

  const auto pairs = static_cast<std::size_t>(shape_.head_dim / 2);
  std::vector<float2> rotary(pairs * max_context_);
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const double frequency = std::pow(static_cast<double>(shape_.rope_theta),
                                      -static_cast<double>(pair) / static_cast<double>(pairs));
    for (int position = 0; position < max_context_; ++position) {
      rotary[position * pairs + pair] = {static_cast<float>(std::cos(position * frequency)),
                                         static_cast<float>(std::sin(position * frequency))};
    }
  }
  rotary_ = DeviceBuffer(rotary.size() * sizeof(float2), what);
  check(cudaMemcpy(rotary_.as<void>(), rotary.data(), rotary_.bytes(), cudaMemcpyHostToDevice),
        what);
}

const WeightSet& CudaModel::set(Precision precision) const {
  const auto found = sets_.find(precision);
  if (found == sets_.end()) {
    throw std::invalid_argument("Precision " + std::string(specquant::name_of(precision)) +
                                " was not named when the model was loaded.");
  }
  return found->second;
}

MemoryUse CudaModel::memory() const {
  MemoryUse use;
  for (const auto& [key, matrix] : matrices_) {
    use.weight_bytes[name_of(matrix.format)] += static_cast<int64_t>(matrix.data.bytes());
  }
  use.weight_bytes["f32"] += static_cast<int64_t>(norms_.bytes());
  use.kv_bytes = static_cast<int64_t>(cache_->bytes());
  return use;
}

Proof CudaModel::proof(Precision precision) const {
  const WeightSet& weights = set(precision);
  Proof proof;
  const bool integers = integer_inputs(precision);
  for (const DeviceMatrix* matrix : weights.layers) {
    proof.bytes_per_token += static_cast<int64_t>(matrix->data.bytes());
  }
  proof.bytes_per_token += static_cast<int64_t>(weights.head->data.bytes());
  proof.bytes_per_token +=
      static_cast<int64_t>(weights.embedding->data.bytes()) / shape_.vocabulary;
  proof.bytes_per_token += static_cast<int64_t>(norms_.bytes());
  proof.kernels.push_back(kernel_name(weights.layers[0]->format, integers));
  const bool integers_of_head = integer_head(precision, weights.head->format);
  const std::string head = kernel_name(weights.head->format, integers_of_head);
  if (head != proof.kernels[0]) proof.kernels.push_back(head);
  if (precision == Precision::w4a4) {
    proof.compute_dtype =
        "4-bit codes with an f32 scale and a zero point a group of 32, on INT8 tensor cores (sm_90 "
        "has "
        "none for INT4)";
  } else if (integers) {
    proof.compute_dtype = "8-bit integers with an f32 scale a group of 32";
  } else {
    proof.compute_dtype = precision == Precision::bf16 ? "bf16" : "f16";
  }
  if (integers && !integers_of_head) {
    proof.compute_dtype +=
        weights.head->format == WeightFormat::bf16 ? ", head bf16" : ", head f16";
  }
  proof.compute_dtype += "; f32 sums";
  return proof;
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
  const WeightSet& weights = set(precision);
  validate(batch, max_batch_, max_context_, shape_.vocabulary);
  if (want.top_k < 0 || want.top_k > shape_.vocabulary) {
    throw std::invalid_argument("top_k must be between 0 and the vocabulary's " +
                                std::to_string(shape_.vocabulary) + ".");
  }
  collect(batch, want.rows);
  want_ = want;
  top_.resize(logit_rows_ * static_cast<std::size_t>(want.top_k));
  log_sums_.resize(want.log_sum ? logit_rows_ : 0);
  logits_.resize(want.logits ? logit_rows_ * static_cast<std::size_t>(shape_.vocabulary) : 0);
  const std::span<const PlacedRow> rows(rows_);
  for (std::size_t first = 0; first < rows.size(); first += kStepRows) {
    pass(precision, weights,
         rows.subspan(first, std::min<std::size_t>(kStepRows, rows.size() - first)), want);
  }
}

void CudaModel::pass(Precision precision, const WeightSet& weights, std::span<const PlacedRow> rows,
                     const Want& want) {
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
  a.norms = norms_.as<float>();
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
  h.logits = logits_device_.as<float>();
  h.arrivals = arrivals_.as<unsigned>() + 1;
  check(weights.head_launchers.head(h, blocks_, stream_), "the head's kernel");
  take_results(first_logit, logit_rows, want);
}

void CudaModel::take_results(int first, int count, const Want& want) {
  const auto vocabulary = static_cast<std::size_t>(shape_.vocabulary);
  const int k = std::min(want.top_k, kDeviceTopK);
  check(launch_results(logits_device_.as<float>(), count, shape_.vocabulary, k,
                       entries_.as<TopEntry>(), want.log_sum ? sums_.as<LogitSum>() : nullptr,
                       top_device_.as<TopEntry>(), log_sums_device_.as<float>(), stream_),
        "the choice of tokens");
  const char* what = "reading results";
  const std::size_t entries = static_cast<std::size_t>(count) * k;
  check(cudaMemcpyAsync(top_host_.as<void>(), top_device_.as<void>(), entries * sizeof(TopEntry),
                        cudaMemcpyDeviceToHost, stream_),
        what);
  if (want.log_sum) {
    check(cudaMemcpyAsync(log_sums_host_.as<void>(), log_sums_device_.as<void>(),
                          count * sizeof(float), cudaMemcpyDeviceToHost, stream_),
          what);
  }
  // More entries than the device picks are picked here, from the whole rows.
  const bool here = want.top_k > kDeviceTopK;
  std::vector<float> whole;
  if (want.logits || here) {
    whole.resize(count * vocabulary);
    check(cudaMemcpyAsync(whole.data(), logits_device_.as<void>(), whole.size() * sizeof(float),
                          cudaMemcpyDeviceToHost, stream_),
          what);
  }
  check(cudaStreamSynchronize(stream_), "a forward pass");
  const auto at = static_cast<std::size_t>(first);
  if (want.logits) std::ranges::copy(whole, logits_.begin() + at * vocabulary);
  if (want.log_sum) std::copy_n(log_sums_host_.as<float>(), count, log_sums_.begin() + at);
  if (!here) {
    std::copy_n(top_host_.as<TopEntry>(), entries, top_.begin() + at * k);
    return;
  }
  std::vector<TopEntry> row(vocabulary);
  for (int i = 0; i < count; ++i) {
    for (std::size_t token = 0; token < vocabulary; ++token) {
      row[token] = {static_cast<int32_t>(token), whole[i * vocabulary + token]};
    }
    const auto before = [](const TopEntry& a, const TopEntry& b) {
      return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
    };
    std::partial_sort_copy(row.begin(), row.end(), top_.begin() + (at + i) * want.top_k,
                           top_.begin() + (at + i + 1) * want.top_k, before);
  }
}

std::span<const TopEntry> CudaModel::top(std::size_t row) const {
  if (row >= logit_rows_) throw std::invalid_argument("The last forward left no such logit row.");
  return std::span(top_).subspan(row * want_.top_k, want_.top_k);
}
float CudaModel::log_sum(std::size_t row) const {
  if (row >= log_sums_.size())
    throw std::invalid_argument("The last forward left no such log-sum.");
  return log_sums_[row];
}
std::span<const float> CudaModel::logits(std::size_t row) const {
  if (!want_.logits || row >= logit_rows_) {
    throw std::invalid_argument("The last forward left no such row of logits.");
  }
  return std::span(logits_).subspan(row * shape_.vocabulary, shape_.vocabulary);
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

}  // namespace specquant::cuda
