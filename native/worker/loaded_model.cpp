#include "worker/loaded_model.h"

#include <algorithm>

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

// The drafter's tokens must be the target's.
void require_vocabulary_of(const LoadedModel& target, const LoadedModel& drafter) {
  const int own = drafter.shape().vocabulary;
  const int wanted = target.shape().vocabulary;
  if (own == wanted) return;
  core::bad_request("'" + drafter.source().key + "': " + title(drafter) + " (" + drafter.name() +
                    ") has a vocabulary of " + std::to_string(own) + " tokens and the target (" +
                    target.name() + ") one of " + std::to_string(wanted) +
                    "; a drafter needs the target's own tokenizer.");
}

// A head must have been trained for the model that it is to draft for; one without training must
// read hidden states of that width and depth.
void require_trained_for(const LoadedModel& target, const LoadedModel& head) {
  if (head.source().synthetic) {
    const core::HeadTarget& wanted = *head.head_target();
    const ModelShape& shape = target.shape();
    if (wanted.hidden == shape.hidden && wanted.layers == shape.layers) return;
    core::bad_request("'" + head.source().key + ".synthetic.target': " + title(head) + " (" +
                      head.name() + ") reads a model of " + std::to_string(wanted.layers) +
                      " layers of width " + std::to_string(wanted.hidden) + ", and " +
                      core::quoted(target.source().id) + " (" + target.name() + ") has " +
                      std::to_string(shape.layers) + " of " + std::to_string(shape.hidden) +
                      ". Give the head the shape of its target.");
  }
  const std::string& trained_for = head.head_target()->content_hash;
  if (trained_for == target.content_hash()) return;
  core::bad_request(
      "'" + head.source().key + "': " + title(head) + " (" + head.name() +
      ") was trained for the model with the content " + core::quoted(trained_for) + ", and " +
      core::quoted(target.source().id) + " (" + target.name() + ") has " +
      core::quoted(target.content_hash()) +
      ". Train a head for this model with 'python -m backends.train', or import one " +
      "that was trained for it with 'python -m backends.pack'.");
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

const core::HeadTarget* LoadedModel::head_target() const {
  const auto& target = file_ ? file_->metadata().target : source_.synthetic->target;
  return target ? &*target : nullptr;
}

std::vector<int> LoadedModel::taps() const {
  return is_head() ? head_target()->taps : std::vector<int>();
}

void LoadedModel::put_on(Hardware& hardware, const LoadedModel* target, int max_batch,
                         int max_context) {
  try {
    device_ = source_.synthetic
                  ? hardware.load_synthetic(*source_.synthetic, source_.precisions, max_batch,
                                            max_context)
                  : hardware.load(*file_, target == nullptr ? nullptr : target->file_.get(),
                                  source_.precisions, max_batch, max_context);
  } catch (const core::Error& error) {
    if (source_.id == decode::kTargetId) throw;
    throw core::Error(error.type(), "'" + source_.key + "': " + error.what());
  }
}

std::vector<std::unique_ptr<LoadedModel>> open_models(const ModelSource& target,
                                                      std::span<const ModelSource> drafters,
                                                      int max_context) {
  std::vector<std::unique_ptr<LoadedModel>> models;
  models.push_back(std::make_unique<LoadedModel>(target));
  for (const ModelSource& source : drafters) {
    models.push_back(std::make_unique<LoadedModel>(source));
    require_vocabulary_of(*models[0], *models.back());
  }
  std::vector<std::string> ids;
  for (const auto& model : models) {
    model->require_positions(max_context);
    if (!model->is_head()) ids.push_back(model->source().id);
  }
  if (models[0]->is_head()) {
    core::bad_request("'model' is the draft head " + core::quoted(models[0]->name()) +
                      "; name it under 'drafters' of a load of its target.");
  }
  for (const auto& model : std::span(models).subspan(1)) {
    const std::string key = "'" + model->source().key + ".target'";
    const std::string& named = model->target_id();
    if (!model->is_head()) {
      if (named == decode::kTargetId) continue;
      core::bad_request(key + " belongs to draft heads alone, and " + title(*model) +
                        " is a model of its own; leave it out.");
    }
    const auto found = std::ranges::find_if(
        models, [&](const auto& m) { return m->source().id == named && !m->is_head(); });
    if (found == models.end()) {
      core::bad_request(key + " is " + core::quoted(named) + ", which is no model of this load. " +
                        core::suggestion(named, ids));
    }
    require_trained_for(**found, *model);
  }
  return models;
}

}  // namespace specquant::worker
