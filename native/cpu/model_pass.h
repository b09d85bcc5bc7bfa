// One pass of a few rows through all layers and the head, on all threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/hadamard.h"
#include "core/packed_metadata.h"
#include "cpu/elementwise.h"
#include "cpu/kernels.h"
#include "cpu/model_cache.h"
#include "cpu/model_features.h"
#include "cpu/model_results.h"
#include "cpu/model_rotary.h"
#include "cpu/model_weights.h"
#include "cpu/read_ahead.h"
#include "cpu/threads.h"

namespace specquant::cpu {

// A forward of more rows runs in passes of this many: enough that the kernels are bound by
// arithmetic, few enough that the activations stay in the second-level cache.
constexpr int kPassRows = 64;

// A token on its way through the model.
struct PassRow {
  int slot = 0;
  int token = 0;
  int cache_index = 0;     // where its key and value go
  int position = 0;        // for rotary embedding
  int prefix = 0;          // cache entries that it sees at their own index
  int trunk = 0;           // cache index of bit 0 of `ancestors`
  uint64_t ancestors = 0;  // 0 for a chain
  int logit_row = -1;      // -1: no logits wanted
  std::size_t feature_row = 0;
  const float* feature = nullptr;  // draft heads only
  bool feature_of_target = false;  // or the head's own
};

class Pass {
 public:
  // All but the metadata must outlive the pass.
  Pass(const core::PackedMetadata& metadata, int max_context, const KernelTable& kernels,
       const FloatKernels& floats, KvCache& cache, ThreadPool& pool);

  // At most kPassRows rows. Rows of one sequence must come in order, after all that they see.
  void run(const WeightSet& weights, std::span<const PassRow> rows, LogitResults& results,
           FeatureResults& features);

 private:
  using Member = ThreadPool::Member;

  // Packed inputs of the four kinds of products. Where rows are few, every thread packs all of them
  // for itself, which costs less than waiting for another; else the threads share one set.
  struct Inputs {
    PackedRows qkv, o, gate_up, down, head;
    PackedRows joined;           // of draft heads: embedding and feature side by side
    PackedRows target_features;  // eagle3
    std::vector<float> normed;   // [row][...], the widest of the above that is computed
    std::vector<float> scratch;  // of a Hadamard transform
    std::vector<float> ordered;  // [row][...], columns in a matrix's own order
  };

  // model_pass_input.cpp: the residual stream in front of the first layer.
  void start_stream();
  void bring_in_features(Member& member);
  void join_embedding_and_feature(Member& member);
  void fuse_target_features(Member& member);
  void normalize_stream(Member& member);
  void join_norms(Member& member, const float* stream_norm);

  void prepare_inputs();
  // Returns what it has asked for of the head.
  ReadAhead layers(Member& member);
  // The start of what share() gives this thread of a matrix whose tiles go out in `step`s.
  static ReadAhead start_of(const Member& member, const Matrix& matrix, int step);
  // model_pass_attention.cpp; the first two take the outputs of a piece of qkv.
  void add_bias_and_normalize(const LayerWeights& layer, int tile_begin, int tile_end,
                              float* outputs) const;
  void place_heads(int layer, int tile_begin, int tile_end, const float* outputs);
  int attention_grain(const Member& member) const;  // in query heads of a row
  void attention(Member& member, int layer);

  void head(Member& member, ReadAhead ahead);
  // Keeps the residual stream where `tap` is wanted. Nobody may change it before the next barrier.
  void keep_features(const Member& member, int tap);
  Inputs& inputs(const Member& member) {
    return inputs_[static_cast<std::size_t>(apart_ ? member.index() : 0)];
  }
  // Calls work(begin, end) for rows that this thread is to prepare, and waits if they are shared
  // out.
  template <typename Work>
  void prepare_rows(Member& member, int rows, Work&& work) {
    if (apart_) {
      work(0, rows);
      return;
    }
    member.share(rows, kRowBlock, work);
    member.barrier();
  }
  void norm_and_pack(Member& member, const float* norm, const int32_t* columns, PackedRows& packed,
                     ReadAhead& ahead);
  // Whether whoever computes the inputs of o, or of down, packs them at once for all threads.
  bool packs_attention(const LayerWeights& layer) const;
  bool packs_mlp(const LayerWeights& layer) const;
  // Packs `width` values a row, after their Hadamard transform where there is one.
  void pack_rows(Member& member, const std::vector<float>& values, int width,
                 const std::optional<core::Hadamard>& transform, const int32_t* columns,
                 PackedRows& packed);
  // Packs rows of `width` values in the order of `columns` (null: as they stand).
  void pack(Member& member, const float* x, int width, const int32_t* columns, int begin, int end,
            PackedRows& packed);
  // The norm of a row of the residual stream, or the row itself where the model has no norm there.
  void normalize(int row, const float* norm, float* out) const;

  const core::Architecture architecture_;
  const bool norm_before_residual_;
  const ModelShape shape_;
  const KernelTable& kernels_;
  const FloatKernels& floats_;
  KvCache& cache_;
  ThreadPool& pool_;
  RotaryTable rotary_;
  const std::optional<core::Hadamard> attention_transform_, mlp_transform_;  // in front of o, down
  int attention_width_ = 0, score_stride_ = 0;

  std::vector<Inputs> inputs_;               // one a thread
  std::vector<std::vector<float>> scores_;   // one a thread
  std::vector<std::vector<float>> outputs_;  // one a thread: [row][kPieceOutputs], of one piece
  std::vector<float> residual_, query_, attention_, mlp_;  // [row][...]
  std::vector<float> embedded_;                            // [row][hidden], of draft heads

  // Of the pass that runs.
  const WeightSet* weights_ = nullptr;
  std::span<const PassRow> rows_;
  std::vector<int> logit_rows_;   // indices into rows_
  std::vector<int> target_rows_;  // likewise: eagle3's with the target's features
  LogitResults* results_ = nullptr;
  FeatureResults* features_ = nullptr;
  bool apart_ = false;
};

}  // namespace specquant::cpu
