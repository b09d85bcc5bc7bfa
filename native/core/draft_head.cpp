#include "core/draft_head.h"

namespace specquant::core {

namespace {

void check_fits(const PackedFile& head, const PackedFile& target) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorType::model, "Model file " + head.path() + ": " + what);
  };
  if (!head.metadata().target) {
    fail("it is a whole model, not a draft head. Name it as a drafter of kind 'model'.");
  }
  const HeadTarget& wanted = *head.metadata().target;
  const ModelShape& shape = target.shape();
  if (wanted.content_hash != target.content_hash()) {
    fail("it was trained for the model with the content hash " + wanted.content_hash +
         ", not for " + target.path() + " with " + target.content_hash() +
         ". Train it for this model with 'python -m backends.train', or name the model that it "
         "belongs to.");
  }
  if (wanted.hidden != shape.hidden || wanted.layers != shape.layers) {
    fail("its target has " + std::to_string(wanted.layers) + " layers of width " +
         std::to_string(wanted.hidden) + ", but " + target.path() + " has " +
         std::to_string(shape.layers) + " of " + std::to_string(shape.hidden) + ".");
  }
  if (head.shape().vocabulary != shape.vocabulary) {
    fail("its vocabulary of " + std::to_string(head.shape().vocabulary) +
         " tokens is not the target's of " + std::to_string(shape.vocabulary) + ".");
  }
  if (is_draft_head(target.metadata().architecture)) {
    fail("its target " + target.path() + " is a draft head itself.");
  }
  for (const char* name : {"embed", "head"}) {
    if (head.find(name) == nullptr && head.shape().hidden != shape.hidden) {
      fail("tensor '" + std::string(name) + "' is missing, and the target's, of width " +
           std::to_string(shape.hidden) + ", does not fit the head's width of " +
           std::to_string(head.shape().hidden) + ".");
    }
  }
}

}  // namespace

void check_target(const PackedFile& file, const PackedFile* target) {
  if (target != nullptr) {
    check_fits(file, *target);
  } else if (file.metadata().target) {
    throw Error(ErrorType::model, "Model file " + file.path() +
                                      ": it is a draft head and drafts only beside its target. "
                                      "Name it as a drafter of kind 'head'.");
  }
}

}  // namespace specquant::core
