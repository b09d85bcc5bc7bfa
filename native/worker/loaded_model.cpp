#include "worker/loaded_model.h"

#include "core/errors.h"
#include "core/fields.h"
#include "core/names.h"
#include "decode/method.h"

namespace specquant::worker {
namespace {

std::string title(const LoadedModel& model) {
  return model.source().id == decode::kTargetId ? "the model"
                                                : "the drafter " + core::quoted(model.source().id);
}

}  // namespace

LoadedModel::LoadedModel(const ModelSource& source) : source_(source) {
  if (source_.synthetic) {
    content_hash_ = source_.synthetic->content_hash();
  } else {
    file_ = std::make_unique<core::PackedFile>(source_.path);
    content_hash_ = file_->content_hash();
  }
}

const ModelShape& LoadedModel::shape() const {
  return file_ ? file_->shape() : source_.synthetic->shape;
}

const std::string& LoadedModel::name() const {
  return file_ ? file_->name() : source_.synthetic->name;
}

void LoadedModel::require_positions(int max_context) const {
  if (max_context <= shape().max_position) return;
  core::bad_request("'max_context' is " + std::to_string(max_context) + "; " + title(*this) +
                    " has positions for " + std::to_string(shape().max_position) + " tokens.");
}

void LoadedModel::put_on(Hardware& hardware, int max_batch, int max_context) {
  device_ = source_.synthetic ? hardware.load_synthetic(*source_.synthetic, source_.precisions,
                                                        max_batch, max_context)
                              : hardware.load(*file_, source_.precisions, max_batch, max_context);
}

void require_vocabulary_of(const LoadedModel& target, const LoadedModel& drafter) {
  const int own = drafter.shape().vocabulary;
  const int wanted = target.shape().vocabulary;
  if (own == wanted) return;
  core::bad_request("'" + drafter.source().key + "': " + title(drafter) + " (" + drafter.name() +
                    ") has a vocabulary of " + std::to_string(own) + " tokens and the target (" +
                    target.name() + ") one of " + std::to_string(wanted) +
                    "; a drafter needs the target's own tokenizer.");
}

}  // namespace specquant::worker
