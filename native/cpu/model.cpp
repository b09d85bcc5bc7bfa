#include "cpu/model.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/draft_head.h"
#include "core/errors.h"
#include "core/memory.h"

namespace specquant::cpu {
namespace {

using core::Error;
using core::ErrorType;
using core::gigabytes;

// Refuses what cannot be loaded before anything is allocated. Returns `pool`.
std::shared_ptr<ThreadPool> checked(const core::PackedFile& file, const core::PackedFile* target,
                                    std::span<const Precision> precisions, int max_batch,
                                    int max_context, std::shared_ptr<ThreadPool> pool) {
  core::check_target(file, target);
  const double cache = KvCache::bytes_needed(file.shape(), max_batch, max_context);
  const double weights = ModelWeights::bytes_needed(file, target, precisions);
  const auto available = static_cast<double>(core::available_memory());
  if (cache + weights > available) {
    throw Error(ErrorType::out_of_memory,
                "The model needs " + gigabytes(cache + weights) + " (" + gigabytes(cache) +
                    " for a KV cache of " + std::to_string(max_batch) + " x " +
                    std::to_string(max_context) + " tokens, " + gigabytes(weights) +
                    " for weights), and " + gigabytes(available) +
                    " are available. Lower the batch size or the context.");
  }
  return pool;
}

// The matrices whose inputs are transformed, for the record.
std::string transforms_of(const core::PackedMetadata& metadata) {
  std::string matrices = metadata.hadamard_o ? "o" : "";
  if (metadata.hadamard_down) matrices += matrices.empty() ? "down" : " and down";
  return matrices;
}

const char* in_words(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::f32:
      return "f32";
    case ActivationKind::bf16:
      return "bf16";
    case ActivationKind::i16:
      return "16-bit integers with an f32 scale a group of 32";
    case ActivationKind::i8:
      return kEightBitInputs;
    case ActivationKind::u4:
      return kFourBitInputs;
    case ActivationKind::u4g16:
      return "4-bit codes with an f32 scale and a zero point a group of 16";
  }
  return "f32";
}

int64_t bytes_of(const Matrix& matrix) {
  return static_cast<int64_t>(matrix.tile_bytes()) * matrix.tile_count();
}

}  // namespace

std::unique_ptr<CpuModel> make_cpu_model(const core::PackedFile& file,
                                         std::span<const Precision> precisions, int max_batch,
                                         int max_context, std::shared_ptr<ThreadPool> pool,
                                         const core::PackedFile* target) {
  return std::make_unique<CpuModel>(file, precisions, max_batch, max_context, std::move(pool),
                                    kernels(), target);
}

std::unique_ptr<CpuModel> make_cpu_model(const core::PackedFile& file,
                                         std::span<const Precision> precisions, int max_batch,
                                         int max_context, int threads,
                                         const core::PackedFile* target) {
  if (threads < 0) throw Error(ErrorType::bad_request, "threads must be at least 0.");
  auto pool = std::make_shared<ThreadPool>(threads == 0 ? available_cores() : threads);
  return make_cpu_model(file, precisions, max_batch, max_context, std::move(pool), target);
}

CpuModel::CpuModel(const core::PackedFile& file, std::span<const Precision> precisions,
                   int max_batch, int max_context, std::shared_ptr<ThreadPool> pool,
                   const KernelTable& table, const core::PackedFile* target)
    : shape_(file.shape()),
      draft_tokens_(file.draft_tokens()),
      transforms_(transforms_of(file.metadata())),
      limits_(shape_, max_batch, max_context),
      kernels_(table),
      pool_(checked(file, target, precisions, max_batch, max_context, std::move(pool))),
      weights_(file, target, precisions, *pool_),
      cache_(shape_, max_batch, max_context),
      pass_(file.metadata(), max_context, table, float_kernels(table.name), cache_, *pool_),
      results_(float_kernels(table.name), weights_.head_rows(), draft_tokens_, pool_->size()) {}

MemoryUse CpuModel::memory() const {
  return {weights_.bytes_by_kind(), static_cast<int64_t>(cache_.bytes())};
}

Proof CpuModel::proof(Precision precision) const {
  const WeightSet& set = weights_.set(precision);
  const LayerInputs& inputs = set.layer_inputs;
  Proof proof;
  const auto add = [&](const Matrix& matrix, ActivationKind input) {
    proof.bytes_per_token += bytes_of(matrix);
    std::string instructions = kernels_.name;
    if (instructions == "avx512") {
      if (input == ActivationKind::bf16) {
        if (kernels_.native_bf16) instructions += " bf16";
      } else if (input != ActivationKind::f32) {
        instructions += " vnni";
      }
    }
    const std::string name =
        std::string(cpu::name_of(matrix.kind)) + " x " + cpu::name_of(input) + ", " + instructions;
    if (std::ranges::find(proof.kernels, name) == proof.kernels.end()) {
      proof.kernels.push_back(name);
    }
  };
  if (set.feature_fc.rows > 0) add(set.feature_fc, set.feature_input);
  for (const LayerWeights& layer : set.layers) {
    add(layer.qkv, inputs.qkv);
    add(layer.o, inputs.o);
    add(layer.gate_up, inputs.gate_up);
    add(layer.down, inputs.down);
  }
  add(set.head, set.head_input);
  proof.bytes_per_token += weights_.vector_bytes() + bytes_of(set.embedding) / set.embedding.rows;
  // gate_up has the kind that gives the precision its name; others are told where they differ.
  proof.compute_dtype = in_words(inputs.gate_up);
  const auto tell = [&](const char* what, ActivationKind kind) {
    if (kind == inputs.gate_up) return;
    proof.compute_dtype += std::string(", ") + what + " " + in_words(kind);
  };
  tell("q, k and v", inputs.qkv);
  tell("o", inputs.o);
  tell("down", inputs.down);
  tell("head", set.head_input);
  proof.compute_dtype += "; f32 sums";
  if (!transforms_.empty()) proof.compute_dtype += "; f32 Hadamard transform before " + transforms_;
  return proof;
}

void CpuModel::forward(Precision precision, std::span<const Rows> batch, const Want& want) {
  const WeightSet& set = weights_.set(precision);
  limits_.check_forward(batch, want, weights_.head_rows());
  collect_rows(batch, want.rows);
  const auto logit_rows = static_cast<std::size_t>(
      std::ranges::count_if(rows_, [](const PassRow& row) { return row.logit_row >= 0; }));
  results_.start(logit_rows, want);
  features_.start(rows_.size(), want.taps, shape_.hidden);
  const std::span<const PassRow> rows(rows_);
  for (std::size_t first = 0; first < rows.size(); first += kPassRows) {
    pass_.run(set, rows.subspan(first, std::min<std::size_t>(kPassRows, rows.size() - first)),
              results_, features_);
  }
  results_.finish();
}

void CpuModel::collect_rows(std::span<const Rows> batch, LogitRows wanted) {
  rows_.clear();
  int logit_row = 0;
  for (const Rows& sequence : batch) {
    const auto count = static_cast<int>(sequence.tokens.size());
    const int trunk = trunk_of(sequence);
    for (int i = 0; i < count; ++i) {
      PassRow row;
      row.slot = sequence.slot;
      row.token = sequence.tokens[static_cast<std::size_t>(i)];
      row.trunk = trunk;
      row.cache_index = sequence.base + i;
      if (sequence.ancestors.empty()) {
        row.position = row.cache_index;
        row.prefix = row.cache_index + 1;
      } else {
        row.ancestors = sequence.ancestors[static_cast<std::size_t>(i)];
        row.position = trunk + std::popcount(row.ancestors) - 1;
        row.prefix = trunk;
      }
      const bool last = i == count - 1;
      if (wanted == LogitRows::all || (wanted == LogitRows::last && last)) {
        row.logit_row = logit_row++;
      }
      row.feature_row = rows_.size();
      if (!sequence.features.empty()) {
        const std::size_t width = sequence.features.size() / sequence.tokens.size();
        row.feature = sequence.features.data() + static_cast<std::size_t>(i) * width;
        row.feature_of_target = width == static_cast<std::size_t>(shape_.feature_width);
      }
      rows_.push_back(row);
    }
  }
}

std::span<const TopEntry> CpuModel::top(std::size_t logit_row) const {
  return results_.top(logit_row);
}
float CpuModel::log_sum(std::size_t logit_row) const { return results_.log_sum(logit_row); }
std::span<const float> CpuModel::logits(std::size_t logit_row) const {
  return results_.logits(logit_row);
}

void CpuModel::compact(int slot, int base, std::span<const int> path) {
  limits_.check_path(slot, base, path);
  cache_.compact(slot, base, path);
}

std::shared_ptr<const void> CpuModel::save(int slot, int length) const {
  limits_.check_slot(slot, length);
  return cache_.save(slot, length);
}

void CpuModel::restore(int slot, const std::shared_ptr<const void>& saved) {
  limits_.check_slot(slot, 0);
  cache_.restore(slot, saved);
}

}  // namespace specquant::cpu
