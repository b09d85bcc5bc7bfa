// The drafters that a method may name.
#include <algorithm>
#include <array>

#include "core/errors.h"
#include "core/names.h"
#include "decode/cascade_drafter.h"
#include "decode/head_drafter.h"
#include "decode/method_kinds.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "decode/self_drafter.h"

namespace specquant::decode {
namespace {

using core::bad_request;
using core::Fields;

constexpr int kLongestNgram = 16;
constexpr int kMaxCascades = 2;

// The names that the protocol has.
constexpr std::array kProtocolDrafters{"none", "self", "ngram", "model", "head", "cascade"};

void parse_no_drafter(Fields&, Method&) {}

void parse_self(Fields& fields, Method& method) {
  const Precision precision = parse_precision_at(fields, "precision");
  method.precisions.push_back(precision);
  method.drafts_trees = true;
  method.make_drafter = [precision](const Resources& resources) {
    return std::make_unique<SelfDrafter>(resources.target, precision);
  };
}

void parse_ngram(Fields& fields, Method& method) {
  const int longest = fields.has("max_ngram") ? fields.integer("max_ngram", 1, kLongestNgram) : 3;
  const int shortest = fields.has("min_ngram") ? fields.integer("min_ngram", 1, longest) : 1;
  method.make_drafter = [longest, shortest](const Resources& resources) {
    return std::make_unique<NgramDrafter>(shortest, longest, resources.slots);
  };
}

// Reads the keys of a drafter that was loaded, and notes its use.
DrafterUse parse_use(Fields& fields, Method& method, bool head) {
  const DrafterUse use{.path = fields.path_of("id"),
                       .id = fields.text("id"),
                       .precision = parse_precision_at(fields, "precision"),
                       .head = head,
                       .target = method.target_id};
  method.uses.push_back(use);
  return use;
}

void parse_model(Fields& fields, Method& method) {
  const DrafterUse use = parse_use(fields, method, false);
  method.drafts_trees = true;
  method.make_drafter = [use](const Resources& resources) {
    return std::make_unique<ModelDrafter>(resources.drafters.at(use.id).model, use.precision,
                                          resources.slots);
  };
}

void parse_head(Fields& fields, Method& method) {
  const DrafterUse use = parse_use(fields, method, true);
  method.drafts_trees = true;
  method.make_drafter = [use](const Resources& resources) {
    const LoadedDrafter& head = resources.drafters.at(use.id);
    return std::make_unique<HeadDrafter>(head.model, use.precision, head.taps, resources.slots);
  };
}

void parse_cascade(Fields& fields, Method& method) {
  if (method.cascades == kMaxCascades) {
    bad_request("'" + fields.path_of("kind") + "' is 'cascade'; cascades stand at most " +
                std::to_string(kMaxCascades) + " deep.");
  }
  const DrafterUse middle = parse_use(fields, method, false);
  Method inner;
  inner.target_id = middle.id;
  inner.cascades = method.cascades + 1;
  parse_shape(fields, "inner_shape", inner);
  parse_drafter(fields, "inner", inner);
  if (!inner.make_drafter) {
    bad_request("'" + fields.path_of("inner") + "' must name the drafter of the model in the " +
                "middle; without one, use the drafter kind 'model'.");
  }
  require_fit(fields, "inner", "inner_shape", inner);
  if (method.shape.depth + inner.longest() > kMaxDrafted) {
    bad_request("'" + fields.path_of("inner_shape") +
                "': the last round inside a cascade may lead " + std::to_string(inner.longest()) +
                " tokens beyond the " + std::to_string(method.shape.depth) +
                " of the shape; together they must be at most " + std::to_string(kMaxDrafted) +
                ".");
  }
  method.uses.insert(method.uses.end(), inner.uses.begin(), inner.uses.end());
  for (const Precision precision : inner.precisions) {
    method.uses.push_back({.path = fields.path_of("inner"),
                           .id = middle.id,
                           .precision = precision,
                           .head = false,
                           .target = kTargetId});
  }
  method.inner_depth = inner.longest();
  method.inner_room = inner.room();
  method.make_drafter = [middle, inner](const Resources& resources) {
    Model& model = resources.drafters.at(middle.id).model;
    Resources inside{.target = model,
                     .slots = resources.slots,
                     .drafters = resources.drafters,
                     .inner_acceptance = resources.inner_acceptance};
    return std::make_unique<CascadeDrafter>(model, middle.precision, inner.make_drafter(inside),
                                            inner.shape, resources.inner_acceptance,
                                            resources.slots);
  };
}

constexpr std::array kDrafters{Kind{"none", parse_no_drafter}, Kind{"self", parse_self},
                               Kind{"ngram", parse_ngram},     Kind{"model", parse_model},
                               Kind{"head", parse_head},       Kind{"cascade", parse_cascade}};

}  // namespace

void parse_drafter(Fields& fields, const std::string& key, Method& method) {
  parse_part(fields, key, "none", kDrafters, kProtocolDrafters, method);
}

std::vector<std::string> drafter_kinds() { return names_of(kDrafters); }

}  // namespace specquant::decode
