// A model or draft head on the processor: specquant::Model over the packed file, at any of several
// precisions.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/packed_file.h"
#include "cpu/model_cache.h"
#include "cpu/model_features.h"
#include "cpu/model_pass.h"
#include "cpu/model_results.h"
#include "cpu/model_weights.h"
#include "cpu/threads.h"
#include "decode/device.h"
#include "decode/model_limits.h"

namespace specquant::cpu {

// The residual stream and all sums are f32, the KV cache f16 (kv16). The logits of a row are
// bitwise the same for any number of rows and sequences beside it, any number of threads and, but
// for bf16, any instruction set.
class CpuModel final : public Model {
 public:
  // `table` and the float kernels of the same instruction set do the arithmetic, on the threads of
  // `pool`. See make_cpu_model.
  CpuModel(const core::PackedFile& file, std::span<const Precision> precisions, int max_batch,
           int max_context, std::shared_ptr<ThreadPool> pool, const KernelTable& table,
           const core::PackedFile* target = nullptr);

  const ModelShape& shape() const override { return shape_; }
  MemoryUse memory() const override;
  Proof proof(Precision precision) const override;
  void forward(Precision precision, std::span<const Rows> batch, const Want& want) override;
  std::span<const TopEntry> top(std::size_t logit_row) const override;
  float log_sum(std::size_t logit_row) const override;
  std::span<const float> logits(std::size_t logit_row) const override;
  std::span<const float> features(std::size_t row) const override { return features_.row(row); }
  std::span<const int32_t> draft_tokens() const override { return draft_tokens_; }
  void compact(int slot, int base, std::span<const int> path) override;
  std::shared_ptr<const void> save(int slot, int length) const override;
  void restore(int slot, const std::shared_ptr<const void>& saved) override;

  ThreadPool& pool() { return *pool_; }
  KvCache& cache() { return cache_; }

 private:
  void collect_rows(std::span<const Rows> batch, LogitRows wanted);

  const ModelShape shape_;
  const std::span<const int32_t> draft_tokens_;
  const std::string transforms_;
  const ModelLimits limits_;
  const KernelTable& kernels_;
  const std::shared_ptr<ThreadPool> pool_;
  ModelWeights weights_;
  KvCache cache_;
  Pass pass_;
  LogitResults results_;
  FeatureResults features_;
  std::vector<PassRow> rows_;
};

// A model with a KV cache of `max_batch` slots of `max_context` tokens. Models that take turns
// share a pool: what waits for its turn in a pool of its own has gone to sleep when the turn comes,
// and waking it costs about a tenth of a millisecond. The file must outlive the model, and so must
// `target`, which a draft head needs: the model that it was trained for. Throws core::Error that
// says what to change: `out_of_memory` with the bytes needed and available, `unsupported` for a
// precision that the file does not serve, `model` for a shape that the kernels cannot run, a draft
// head without its target or with another, `bad_request` for sizes below 1.
std::unique_ptr<CpuModel> make_cpu_model(const core::PackedFile& file,
                                         std::span<const Precision> precisions, int max_batch,
                                         int max_context, std::shared_ptr<ThreadPool> pool,
                                         const core::PackedFile* target = nullptr);
// On `threads` threads of its own (0: one a core).
std::unique_ptr<CpuModel> make_cpu_model(const core::PackedFile& file,
                                         std::span<const Precision> precisions, int max_batch,
                                         int max_context, int threads = 0,
                                         const core::PackedFile* target = nullptr);

}  // namespace specquant::cpu
