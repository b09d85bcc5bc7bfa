#include "decode/method.h"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>

#include "core/errors.h"
#include "core/names.h"
#include "decode/ngram_drafter.h"
#include "decode/self_drafter.h"

namespace specquant::decode {
namespace {

using core::bad_request;
using core::Error;
using core::ErrorType;
using core::Fields;

constexpr int kLongestNgram = 16;

void parse_no_drafter(Fields&, Method&) {}

void parse_self(Fields& fields, Method& method) {
  const Precision precision = parse_precision_at(fields, "precision");
  method.precisions.push_back(precision);
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

void parse_no_shape(Fields&, Method&) {}

void parse_chain(Fields& fields, Method& method) {
  const int gamma = fields.integer("gamma", 1, kMaxDrafted);
  method.shape = {.depth = gamma, .top_k = 1, .nodes = gamma};
}

void parse_greedy(Fields&, Method& method) {
  method.make_acceptance = [] { return std::make_unique<GreedyAcceptance>(); };
}

// A kind that this build serves: reads its keys and puts its part into the method.
struct Kind {
  const char* name;
  void (*parse)(Fields&, Method&);
};

constexpr std::array kDrafters{Kind{"none", parse_no_drafter}, Kind{"self", parse_self},
                               Kind{"ngram", parse_ngram}};
constexpr std::array kShapes{Kind{"none", parse_no_shape}, Kind{"chain", parse_chain}};
constexpr std::array kAcceptance{Kind{"greedy", parse_greedy}};

// Names that the protocol has.
constexpr std::array kProtocolDrafters{"none", "self", "ngram", "model", "head", "cascade"};
constexpr std::array kProtocolShapes{"none", "chain", "tree"};
constexpr std::array kProtocolAcceptance{"greedy", "sampling", "replay"};

std::vector<std::string> names_of(std::span<const Kind> kinds) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds) names.emplace_back(kind.name);
  return names;
}

// Reads the object under `key` by its kind; `fallback` is the kind where the object is left out.
// Returns the kind.
std::string parse_part(Fields& fields, const std::string& key, const char* fallback,
                       std::span<const Kind> served, std::span<const char* const> protocol,
                       Method& method) {
  static const nlohmann::json nothing = nlohmann::json::object();
  const bool given = fields.has(key);
  Fields part = given ? fields.object(key) : Fields(nothing, fields.path_of(key));
  const std::string name = given ? part.text("kind") : fallback;
  const auto kind = std::ranges::find_if(served, [&](const Kind& k) { return name == k.name; });
  if (kind == served.end()) {
    const std::vector<std::string> names = names_of(served);
    if (std::ranges::find(protocol, name) != protocol.end()) {
      throw Error(ErrorType::unsupported, "'" + part.path_of("kind") + "' " + core::quoted(name) +
                                              " is not served by this backend. It serves " +
                                              core::list_of(names) + ".");
    }
    bad_request("'" + part.path_of("kind") + "' is " + core::quoted(name) + ", which is unknown. " +
                core::suggestion(name, names));
  }
  kind->parse(part, method);
  part.finish();
  return name;
}

}  // namespace

Precision parse_precision_at(Fields& fields, const std::string& key) {
  const std::string name = fields.text(key);
  try {
    return parse_precision(name);
  } catch (const std::invalid_argument& error) {
    bad_request("'" + fields.path_of(key) + "': " + error.what());
  }
}

Method parse_method(Fields fields) {
  Method method;
  method.precision = parse_precision_at(fields, "precision");
  method.precisions.push_back(method.precision);
  if (fields.has("kv_precision") && fields.text("kv_precision") != "kv16") {
    throw Error(ErrorType::unsupported, "'" + fields.path_of("kv_precision") + "' is " +
                                            core::quoted(fields.text("kv_precision")) +
                                            "; this backend keeps keys and values as 'kv16'.");
  }
  parse_part(fields, "shape", "none", kShapes, kProtocolShapes, method);
  parse_part(fields, "drafter", "none", kDrafters, kProtocolDrafters, method);
  parse_part(fields, "acceptance", "greedy", kAcceptance, kProtocolAcceptance, method);
  fields.finish();
  if (method.make_drafter && method.shape.nodes == 0) {
    bad_request("'" + fields.path_of("shape") + "' must say how much the drafter proposes, e.g. " +
                R"({"kind": "chain", "gamma": 3}.)");
  }
  if (!method.make_drafter && method.shape.nodes != 0) {
    bad_request("'" + fields.path_of("shape") +
                R"(' must be {"kind": "none"} where there is no drafter.)");
  }
  return method;
}

std::vector<std::string> drafter_kinds() { return names_of(kDrafters); }
std::vector<std::string> shape_kinds() { return names_of(kShapes); }
std::vector<std::string> acceptance_kinds() { return names_of(kAcceptance); }

}  // namespace specquant::decode
