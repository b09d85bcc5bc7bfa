// What stands in the residual stream in front of the first layer: the embedding, or in a draft head
// what it makes of embedding and feature (docs/packed-format.md).
#include <algorithm>

#include "cpu/model_pass.h"
#include "cpu/model_pieces.h"
#include "cpu/model_tiles.h"

namespace specquant::cpu {

using core::Architecture;

void Pass::start_stream() {
  const int count = static_cast<int>(rows_.size());
  std::vector<float>& embeddings = architecture_ == Architecture::llama ? residual_ : embedded_;
  target_rows_.clear();
  for (int row = 0; row < count; ++row) {
    const PassRow& place = rows_[row];
    float* stream = residual_.data() + at(row, shape_.hidden);
    read_row(weights_->embedding, place.token, embeddings.data() + at(row, shape_.hidden));
    if (architecture_ == Architecture::eagle2 && weights_->fc_bias != nullptr) {
      std::copy(weights_->fc_bias, weights_->fc_bias + shape_.hidden, stream);
    } else if (architecture_ == Architecture::eagle3 && place.feature_of_target) {
      target_rows_.push_back(row);
    } else if (architecture_ == Architecture::eagle3) {
      std::copy(place.feature, place.feature + shape_.hidden, stream);
    }
  }
}

void Pass::bring_in_features(Member& member) {
  if (architecture_ == Architecture::eagle2) join_embedding_and_feature(member);
  if (architecture_ == Architecture::eagle3 && !target_rows_.empty()) fuse_target_features(member);
  if (norm_before_residual_) normalize_stream(member);
}

// eagle2: the stream is fc · [embedding; feature], and the bias that it may start from.
void Pass::join_embedding_and_feature(Member& member) {
  const int rows = static_cast<int>(rows_.size());
  const int width = 2 * shape_.hidden;
  Inputs& input = inputs(member);
  prepare_rows(member, rows, [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      float* joined = input.normed.data() + at(row, width);
      const float* embedding = embedded_.data() + at(row, shape_.hidden);
      const float* feature = rows_[row].feature;
      std::copy(embedding, embedding + shape_.hidden, joined);
      std::copy(feature, feature + shape_.hidden, joined + shape_.hidden);
    }
    kernels_.pack(input.normed.data(), width, begin, end, input.joined);
  });
  const Matrix& fc = weights_->feature_fc;
  member.share(fc.tile_count(), piece_tiles(fc.tile_count(), member.size(), 1),
               [&](int begin, int end) {
                 kernels_.matmul(fc, input.joined, begin, end, residual_.data(), shape_.hidden,
                                 weights_->fc_bias != nullptr);
               });
  member.barrier();
}

// eagle3: the stream of rows that bring the target's features is feature_fc · features; the head's
// own features are the stream already.
void Pass::fuse_target_features(Member& member) {
  const int count = static_cast<int>(target_rows_.size());
  const int width = shape_.feature_width;
  Inputs& input = inputs(member);
  prepare_rows(member, count, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      const float* feature = rows_[target_rows_[i]].feature;
      std::copy(feature, feature + width, input.normed.data() + at(i, width));
    }
    kernels_.pack(input.normed.data(), width, begin, end, input.target_features);
  });
  const Matrix& fc = weights_->feature_fc;
  float* outputs = outputs_[static_cast<std::size_t>(member.index())].data();
  member.share(
      fc.tile_count(), piece_tiles(fc.tile_count(), member.size(), 1), [&](int begin, int end) {
        const Matrix piece = piece_of(fc, begin, end);
        kernels_.matmul(piece, input.target_features, 0, end - begin, outputs, kPieceOutputs,
                        false);
        for (int i = 0; i < count; ++i) {
          const float* from = outputs + at(i, kPieceOutputs);
          std::copy(from, from + piece.rows,
                    residual_.data() + at(target_rows_[i], shape_.hidden) + at(begin, kTileRows));
        }
      });
  member.barrier();
}

// eagle3 heads of norm_before_residual: the stream is norm(feature).
void Pass::normalize_stream(Member& member) {
  for (std::size_t row = member.index(); row < rows_.size(); row += member.size()) {
    float* stream = residual_.data() + row * shape_.hidden;
    floats_.rms_norm(stream, weights_->layers[0].attention_norm, shape_.norm_epsilon, shape_.hidden,
                     stream);
  }
  member.barrier();
}

// eagle3: the first layer's attention takes [norm(embedding); norm(stream)].
void Pass::join_norms(Member& member, const float* stream_norm) {
  const int width = 2 * shape_.hidden;
  Inputs& input = inputs(member);
  prepare_rows(member, static_cast<int>(rows_.size()), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      float* joined = input.normed.data() + at(row, width);
      floats_.rms_norm(embedded_.data() + at(row, shape_.hidden), weights_->embed_norm,
                       shape_.norm_epsilon, shape_.hidden, joined);
      normalize(row, norm_before_residual_ ? nullptr : stream_norm, joined + shape_.hidden);
    }
    kernels_.pack(input.normed.data(), width, begin, end, input.joined);
  });
}

}  // namespace specquant::cpu
