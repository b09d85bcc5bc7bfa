// A method of decoding, composed from independent parts: the precision of the target, a drafter, a
// shape and an acceptance rule. Each part has a table of the kinds that this build serves; parsing,
// capabilities and error messages are derived from the tables.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fields.h"
#include "decode/acceptance.h"
#include "decode/drafter.h"
#include "decode/sampling.h"

namespace specquant::decode {

constexpr const char* kTargetId = "target";  // what a drafter's id can not be

// A drafter's model on the device.
struct LoadedDrafter {
  Model& model;
  std::vector<int> taps;  // of a head: what it reads of its target
};

// What drafters are made from.
struct Resources {
  Model& target;
  int slots = 0;
  const std::map<std::string, LoadedDrafter>& drafters;  // by id
  Acceptance& inner_acceptance;                          // of the rounds in a cascade
};

// A loaded drafter as a method uses it.
struct DrafterUse {
  std::string path;  // of its key in the request, for messages
  std::string id;
  Precision precision = Precision::fp16;
  bool head = false;   // a head for `target`, or a model
  std::string target;  // id of the model that it drafts for
};

struct Method {
  Precision precision = Precision::fp16;
  std::vector<Precision> precisions;  // all that the target computes at, its drafting included
  std::vector<DrafterUse> uses;
  std::string target_id = kTargetId;  // of the model that the drafter drafts for
  int cascades = 0;                   // that the drafter stands in
  Shape shape;                        // of every round; with candidates, what all of them fit into
  std::vector<Shape> candidates;      // where the shape is chosen by round
  bool drafts_trees = false;
  std::function<std::unique_ptr<Drafter>(const Resources&)> make_drafter;  // null without a drafter
  int inner_depth = 0;  // of a cascade: the longest path of a round inside it
  int inner_room = 0;   // and the entries that such a round needs behind the shape's
  std::optional<Sampling> sampling;
  std::function<std::unique_ptr<Acceptance>()> make_acceptance;
  std::function<std::unique_ptr<Acceptance>()> make_inner_acceptance;  // of the rounds in a cascade

  // Of a round: a cascade may lead a round inside it beyond its shape.
  int longest() const { return shape.depth + inner_depth; }
  // Cache entries behind the last committed token that a round may need, in any cache.
  int room() const;
};

// Reads the `method` object of a run and its `sampling`, null for none. Throws core::Error:
// `bad_request` where it is malformed or a name is unknown, `unsupported` where the protocol has
// the name and this build has not.
Method parse_method(core::Fields fields, std::optional<Sampling> sampling = std::nullopt);

// Reads the `sampling` object of a run.
Sampling parse_sampling(core::Fields fields);

// As core::Error, with the key's path in the message.
Precision parse_precision_at(core::Fields& fields, const std::string& key);

std::vector<std::string> drafter_kinds();
std::vector<std::string> shape_kinds();
std::vector<std::string> acceptance_kinds();

}  // namespace specquant::decode
