// A method of decoding, composed from independent parts: the precision of the target, a drafter, a
// shape and an acceptance rule. Each part has a table of the kinds that this build serves; parsing,
// capabilities and error messages are derived from the tables.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fields.h"
#include "decode/acceptance.h"
#include "decode/drafter.h"
#include "decode/sampling.h"

namespace specquant::decode {

// What drafters are made from.
struct Resources {
  Model& target;
  int slots = 0;
};

struct Method {
  Precision precision = Precision::fp16;
  std::vector<Precision> precisions;  // all that the target computes at, its drafting included
  Shape shape;
  std::function<std::unique_ptr<Drafter>(const Resources&)> make_drafter;  // null without a drafter
  int inner_depth = 0;  // of a cascade: the longest path of a round inside it
  std::optional<Sampling> sampling;
  std::function<std::unique_ptr<Acceptance>()> make_acceptance;
  std::function<std::unique_ptr<Acceptance>()> make_inner_acceptance;  // of the rounds in a cascade
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
