#include "decode/method.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/errors.h"
#include "core/names.h"
#include "decode/method_kinds.h"

namespace specquant::decode {
namespace {

using core::bad_request;
using core::Error;
using core::ErrorType;
using core::Fields;

constexpr int kMaxGrown = 64;  // rows of a growing tree that a device can mask
constexpr std::size_t kMaxCandidates = 16;
constexpr double kHighestTemperature = 100.0, kLowestTopP = 1e-6;

void parse_no_shape(Fields&, Method&) {}

void parse_chain(Fields& fields, Method& method) {
  const int gamma = fields.integer("gamma", 1, kMaxDrafted);
  method.shape = {.depth = gamma, .top_k = 1, .nodes = gamma};
}

void parse_tree(Fields& fields, Method& method) {
  const int depth = fields.integer("depth", 1, kMaxDrafted);
  const int top_k = fields.integer("top_k", 1, kMaxDrafted);
  const int nodes = fields.integer("nodes", depth, kMaxDrafted);
  method.shape = {.depth = depth, .top_k = top_k, .nodes = top_k == 1 ? depth : nodes};
  if (method.shape.grown() > kMaxGrown) {
    bad_request("'" + fields.path_of("top_k") + "' is " + std::to_string(top_k) + " at depth " +
                std::to_string(depth) +
                "; (depth - 1) * top_k, the nodes that the drafter expands, must be at most " +
                std::to_string(kMaxGrown) + ".");
  }
}

constexpr std::array kCandidates{Kind{"chain", parse_chain}, Kind{"tree", parse_tree}};

void parse_auto(Fields& fields, Method& method) {
  if (method.cascades > 0) {
    bad_request("'" + fields.path_of("kind") + "' is 'auto', but the shape of the rounds inside " +
                "a cascade is fixed; name a chain or a tree.");
  }
  const nlohmann::json& list = fields.value("candidates");
  const std::string path = fields.path_of("candidates");
  if (!list.is_array() || list.empty() || list.size() > kMaxCandidates) {
    bad_request("'" + path + "' must be a list of 1 to " + std::to_string(kMaxCandidates) +
                R"( shapes, e.g. [{"kind": "chain", "gamma": 3}].)");
  }
  Shape all;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Fields candidate(list[i], path + "[" + std::to_string(i) + "]");
    const std::string name = candidate.text("kind");
    parse_kind(std::move(candidate), name, kCandidates, {}, method);
    method.candidates.push_back(method.shape);
    all.depth = std::max(all.depth, method.shape.depth);
    all.top_k = std::max(all.top_k, method.shape.top_k);
    all.nodes = std::max(all.nodes, method.shape.nodes);
  }
  method.shape = all;
}

constexpr std::array kShapes{Kind{"none", parse_no_shape}, Kind{"chain", parse_chain},
                             Kind{"tree", parse_tree}, Kind{"auto", parse_auto}};

// The names that the protocol has.
constexpr std::array kProtocolShapes{"none", "chain", "tree", "auto"};

}  // namespace

void parse_shape(Fields& fields, const std::string& key, Method& method) {
  parse_part(fields, key, "none", kShapes, kProtocolShapes, method);
}

Precision parse_precision_at(Fields& fields, const std::string& key) {
  const std::string name = fields.text(key);
  try {
    return parse_precision(name);
  } catch (const std::invalid_argument& error) {
    bad_request("'" + fields.path_of(key) + "': " + error.what());
  }
}

Sampling parse_sampling(Fields fields) {
  const Sampling sampling{
      .warp = {.temperature = fields.number("temperature", 0.0, kHighestTemperature),
               .top_p = fields.has("top_p") ? fields.number("top_p", kLowestTopP, 1.0) : 1.0},
      .seed = fields.seed("seed")};
  fields.finish();
  return sampling;
}

Method parse_method(Fields fields, std::optional<Sampling> sampling) {
  Method method;
  method.sampling = sampling;
  method.make_inner_acceptance = [] { return std::make_unique<GreedyAcceptance>(); };
  method.precision = parse_precision_at(fields, "precision");
  method.precisions.push_back(method.precision);
  if (fields.has("kv_precision") && fields.text("kv_precision") != "kv16") {
    throw Error(ErrorType::unsupported, "'" + fields.path_of("kv_precision") + "' is " +
                                            core::quoted(fields.text("kv_precision")) +
                                            "; this backend keeps keys and values as 'kv16'.");
  }
  parse_shape(fields, "shape", method);  // first: a cascade must fit it
  parse_drafter(fields, "drafter", method);
  // The acceptance last: a profile must fit the shapes.
  const std::string acceptance = parse_acceptance(fields, "acceptance", method);
  if (sampling && acceptance != "sampling") {
    bad_request("'sampling' is given, but '" + fields.path_of("acceptance") + "' is " +
                core::quoted(acceptance) + R"(; it must be {"kind": "sampling"}.)");
  }
  fields.finish();
  require_fit(fields, "drafter", "shape", method);
  return method;
}

int Method::room() const {
  int most = candidates.empty() ? shape.room() : 0;
  for (const Shape& candidate : candidates) most = std::max(most, candidate.room());
  return most + inner_room;
}

std::vector<std::string> shape_kinds() { return names_of(kShapes); }

}  // namespace specquant::decode
