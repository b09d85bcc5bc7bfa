#include "cpu/model_pass.h"

#include <algorithm>

#include "cpu/model_pieces.h"

namespace specquant::cpu {

using core::Architecture;

namespace {

// Tiles of gate and up that make a whole group of down's inputs.
constexpr int kGroupTiles = 2 * kActivationGroup / kTileRows;

// How much of its next product's weights a thread asks for in advance, and how many lines of it at
// once: as many as a core's requests in flight, and few while it waits and looks for the others.
constexpr std::size_t kReadAheadBytes = 65536;
constexpr int kLinesAtOnce = 32, kLinesWhileWaiting = 4;

// Few rows are normalized and packed by every thread for itself. Sharing them out would cost a
// barrier, and rows of one block share every cache line; so whole blocks are shared, and a team
// must be large before one thread should pack a block for all.
bool worth_repeating(int rows, int threads) {
  return rows <= 4 || (rows <= kRowBlock && threads <= 4);
}

std::optional<core::Hadamard> transform_of(bool wanted, int width) {
  return wanted ? core::hadamard_of(width) : std::nullopt;
}

int width_of(const std::optional<core::Hadamard>& transform) {
  return transform ? transform->width() : 0;
}

}  // namespace

Pass::Pass(const core::PackedMetadata& metadata, int max_context, const KernelTable& kernels,
           const FloatKernels& floats, KvCache& cache, ThreadPool& pool)
    : architecture_(metadata.architecture),
      norm_before_residual_(metadata.norm_before_residual),
      shape_(metadata.shape),
      kernels_(kernels),
      floats_(floats),
      cache_(cache),
      pool_(pool),
      rotary_(core::rotary_frequencies(shape_.head_dim, shape_.rope_theta, metadata.rope_scaling),
              max_context),
      attention_transform_(transform_of(metadata.hadamard_o, shape_.heads * shape_.head_dim)),
      mlp_transform_(transform_of(metadata.hadamard_down, shape_.intermediate)),
      attention_width_(shape_.heads * shape_.head_dim),
      score_stride_((max_context + 31) / 32 * 32),
      inputs_(static_cast<std::size_t>(pool.size())),
      scores_(inputs_.size()),
      outputs_(inputs_.size()),
      residual_(at(kPassRows, shape_.hidden)),
      query_(at(kPassRows, attention_width_)),
      attention_(at(kPassRows, attention_width_)),
      mlp_(at(kPassRows, shape_.intermediate)) {
  int widest = shape_.hidden;
  if (core::is_draft_head(architecture_)) {
    widest = std::max(2 * shape_.hidden, shape_.feature_width);
    embedded_.resize(residual_.size());
  }
  const int transformed = std::max(width_of(attention_transform_), width_of(mlp_transform_));
  widest = std::max(widest, transformed);
  for (std::size_t thread = 0; thread < inputs_.size(); ++thread) {
    inputs_[thread].scratch.resize(static_cast<std::size_t>(transformed));
    inputs_[thread].normed.resize(at(thread == 0 ? kPassRows : kRowBlock, widest));
    scores_[thread].resize(
        at(kRowsAtOnce * std::min(shape_.heads / shape_.kv_heads, 4), score_stride_));
    outputs_[thread].resize(at(kPassRows, kPieceOutputs));
  }
  logit_rows_.reserve(kPassRows);
  target_rows_.reserve(kPassRows);
}

void Pass::run(const WeightSet& weights, std::span<const PassRow> rows, LogitResults& results,
               FeatureResults& features) {
  weights_ = &weights;
  rows_ = rows;
  results_ = &results;
  features_ = &features;
  const int count = static_cast<int>(rows.size());
  apart_ = worth_repeating(count, pool_.size());
  logit_rows_.clear();
  for (int row = 0; row < count; ++row) {
    if (rows_[row].logit_row >= 0) logit_rows_.push_back(row);
  }
  start_stream();
  prepare_inputs();
  pool_.run([this](Member& member) {
    bring_in_features(member);
    const ReadAhead ahead = layers(member);
    head(member, ahead);
  });
}

void Pass::prepare_inputs() {
  const int count = static_cast<int>(rows_.size());
  const LayerInputs& kinds = weights_->layer_inputs;
  const int sets = apart_ ? pool_.size() : 1;
  const auto reordered = [](const LayerWeights& layer) {
    return layer.qkv_columns != nullptr || layer.o_columns != nullptr ||
           layer.gate_up_columns != nullptr || layer.down_columns != nullptr;
  };
  const bool orders = std::ranges::any_of(weights_->layers, reordered);
  const int widest = std::max({shape_.hidden, attention_width_, shape_.intermediate});
  for (int i = 0; i < sets; ++i) {
    Inputs& set = inputs_[static_cast<std::size_t>(i)];
    if (orders) set.ordered.resize(std::max(set.ordered.size(), at(count, widest)));
    set.qkv.prepare(kinds.qkv, count, shape_.hidden);
    set.o.prepare(kinds.o, count, attention_width_);
    set.gate_up.prepare(kinds.gate_up, count, shape_.hidden);
    set.down.prepare(kinds.down, count, shape_.intermediate);
    if (!logit_rows_.empty()) {
      set.head.prepare(weights_->head_input, static_cast<int>(logit_rows_.size()), shape_.hidden);
    }
    if (architecture_ == Architecture::eagle2) {
      set.joined.prepare(weights_->feature_input, count, 2 * shape_.hidden);
    } else if (architecture_ == Architecture::eagle3) {
      set.joined.prepare(kinds.qkv, count, 2 * shape_.hidden);
      if (target_rows_.empty()) continue;
      set.target_features.prepare(weights_->feature_input, static_cast<int>(target_rows_.size()),
                                  shape_.feature_width);
    }
  }
}

void Pass::normalize(int row, const float* norm, float* out) const {
  const float* stream = residual_.data() + at(row, shape_.hidden);
  if (norm == nullptr) {
    std::copy(stream, stream + shape_.hidden, out);
  } else {
    floats_.rms_norm(stream, norm, shape_.norm_epsilon, shape_.hidden, out);
  }
}

void Pass::pack(Member& member, const float* x, int width, const int32_t* columns, int begin,
                int end, PackedRows& packed) {
  if (columns != nullptr) {
    std::vector<float>& ordered = inputs(member).ordered;
    for (int row = begin; row < end; ++row) {
      const float* from = x + at(row, width);
      float* to = ordered.data() + at(row, width);
      for (int column = 0; column < width; ++column) to[column] = from[columns[column]];
    }
    x = ordered.data();
  }
  kernels_.pack(x, width, begin, end, packed);
}

void Pass::norm_and_pack(Member& member, const float* norm, const int32_t* columns,
                         PackedRows& packed, ReadAhead& ahead) {
  float* normed = inputs(member).normed.data();
  prepare_rows(member, static_cast<int>(rows_.size()), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) normalize(row, norm, normed + at(row, shape_.hidden));
    ahead.ask(kLinesAtOnce);
    pack(member, normed, shape_.hidden, columns, begin, end, packed);
  });
}

void Pass::pack_rows(Member& member, const std::vector<float>& values, int width,
                     const std::optional<core::Hadamard>& transform, const int32_t* columns,
                     PackedRows& packed) {
  float* transformed = inputs(member).normed.data();
  float* scratch = inputs_[static_cast<std::size_t>(member.index())].scratch.data();
  prepare_rows(member, static_cast<int>(rows_.size()), [&](int begin, int end) {
    if (!transform) {
      pack(member, values.data(), width, columns, begin, end, packed);
      return;
    }
    for (int row = begin; row < end; ++row) {
      floats_.hadamard({transform->signs.data(), transform->order, transform->power,
                        values.data() + at(row, width), scratch, transformed + at(row, width)});
    }
    pack(member, transformed, width, columns, begin, end, packed);
  });
}

bool Pass::packs_attention(const LayerWeights& layer) const {
  return !attention_transform_ && layer.o_columns == nullptr &&
         shape_.head_dim % kActivationGroup == 0;
}

bool Pass::packs_mlp(const LayerWeights& layer) const {
  return !mlp_transform_ && layer.down_columns == nullptr;
}

ReadAhead Pass::start_of(const Member& member, const Matrix& matrix, int step) {
  const int tiles = matrix.tile_count();
  const auto [begin, end] = member.own_range(tiles, piece_tiles(tiles, member.size(), step));
  const std::byte* first = matrix.tiles + static_cast<std::size_t>(begin) * matrix.tile_bytes();
  const std::size_t bytes = static_cast<std::size_t>(end - begin) * matrix.tile_bytes();
  return {first, first + std::min(bytes, kReadAheadBytes)};
}

ReadAhead Pass::layers(Member& member) {
  const int rows = static_cast<int>(rows_.size());
  Inputs& input = inputs(member);
  float* outputs = outputs_[static_cast<std::size_t>(member.index())].data();
  // Computes a piece into this thread's memory.
  const auto product = [&](const Matrix& matrix, const PackedRows& packed, int begin, int end) {
    kernels_.matmul(piece_of(matrix, begin, end), packed, 0, end - begin, outputs, kPieceOutputs,
                    false);
  };
  ReadAhead ahead;  // of the next product
  const auto wait = [&] { member.barrier([&] { ahead.ask(kLinesWhileWaiting); }); };
  // Adds a product to the residual stream.
  const auto accumulate = [&](const Matrix& matrix, const PackedRows& packed, const Matrix& next,
                              int next_step) {
    member.share(matrix.tile_count(), piece_tiles(matrix.tile_count(), member.size(), 1),
                 [&](int begin, int end) {
                   kernels_.matmul(matrix, packed, begin, end, residual_.data(), shape_.hidden,
                                   true);
                 });
    ahead = start_of(member, next, next_step);
    wait();
  };

  for (int index = 0; index < shape_.layers; ++index) {
    const LayerWeights& layer = weights_->layers[static_cast<std::size_t>(index)];
    keep_features(member, index);

    const bool joins = index == 0 && architecture_ == Architecture::eagle3;
    if (joins) {
      join_norms(member, layer.attention_norm);
    } else {
      norm_and_pack(member, layer.attention_norm, layer.qkv_columns, input.qkv, ahead);
    }
    // A head with a norm of its own is computed in one piece.
    const int qkv_step = layer.q_norm == nullptr ? 1 : shape_.head_dim / kTileRows;
    member.share(layer.qkv.tile_count(),
                 piece_tiles(layer.qkv.tile_count(), member.size(), qkv_step),
                 [&](int begin, int end) {
                   product(layer.qkv, joins ? input.joined : input.qkv, begin, end);
                   add_bias_and_normalize(layer, begin, end, outputs);
                   place_heads(index, begin, end, outputs);
                 });
    member.barrier();

    attention(member, index);
    ahead = start_of(member, layer.o, 1);
    wait();

    if (packs_attention(layer)) {
      accumulate(layer.o, inputs_[0].o, layer.gate_up, kGroupTiles);
    } else {
      pack_rows(member, attention_, attention_width_, attention_transform_, layer.o_columns,
                input.o);
      accumulate(layer.o, input.o, layer.gate_up, kGroupTiles);
    }

    norm_and_pack(member, layer.mlp_norm, layer.gate_up_columns, input.gate_up, ahead);
    const bool packs = packs_mlp(layer);
    member.share(layer.gate_up.tile_count(),
                 piece_tiles(layer.gate_up.tile_count(), member.size(), kGroupTiles),
                 [&](int begin, int end) {
                   product(layer.gate_up, input.gate_up, begin, end);
                   const int column = begin / 2 * kTileRows;
                   for (int row = 0; row < rows; ++row) {
                     float* values = mlp_.data() + at(row, shape_.intermediate) + column;
                     floats_.silu_product(outputs + at(row, kPieceOutputs), (end - begin) / 2,
                                          values);
                     if (!packs) continue;
                     kernels_.pack_columns(values, row, column, (end - begin) / 2 * kTileRows,
                                           inputs_[0].down);
                   }
                 });
    ahead = start_of(member, layer.down, 1);
    wait();

    const bool last = index + 1 == shape_.layers;
    const Matrix& next =
        last ? weights_->head : weights_->layers[static_cast<std::size_t>(index) + 1].qkv;
    const int next_step = last ? kPieceTiles : qkv_step;
    if (packs) {
      accumulate(layer.down, inputs_[0].down, next, next_step);
    } else {
      pack_rows(member, mlp_, shape_.intermediate, mlp_transform_, layer.down_columns, input.down);
      accumulate(layer.down, input.down, next, next_step);
    }
  }
  keep_features(member, shape_.layers);
  keep_features(member, shape_.layers + 1);
  return ahead;
}

void Pass::keep_features(const Member& member, int tap) {
  const std::span<const int> wanted = features_->taps();
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    if (wanted[index] != tap) continue;
    for (std::size_t row = member.index(); row < rows_.size(); row += member.size()) {
      normalize(static_cast<int>(row), tap <= shape_.layers ? nullptr : weights_->final_norm,
                features_->place(rows_[row].feature_row, index));
    }
  }
}

void Pass::head(Member& member, ReadAhead ahead) {
  const int rows = static_cast<int>(logit_rows_.size());
  if (rows == 0) return;
  Inputs& input = inputs(member);
  prepare_rows(member, rows, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      normalize(logit_rows_[static_cast<std::size_t>(i)], weights_->final_norm,
                input.normed.data() + at(i, shape_.hidden));
    }
    ahead.ask(kLinesAtOnce);
    kernels_.pack(input.normed.data(), shape_.hidden, begin, end, input.head);
  });

  const Matrix& weights = weights_->head;
  float* outputs = outputs_[static_cast<std::size_t>(member.index())].data();
  member.share(weights.tile_count(), kPieceTiles, [&](int begin, int end) {
    const Matrix piece = piece_of(weights, begin, end);
    kernels_.matmul(piece, input.head, 0, end - begin, outputs, kPieceOutputs, false);
    for (int i = 0; i < rows; ++i) {
      const PassRow& place = rows_[logit_rows_[static_cast<std::size_t>(i)]];
      results_->take(member.index(), static_cast<std::size_t>(place.logit_row), begin / kPieceTiles,
                     outputs + at(i, kPieceOutputs), piece.rows);
    }
  });
}

}  // namespace specquant::cpu
