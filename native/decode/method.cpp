#include "decode/method.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <stdexcept>

#include "core/errors.h"
#include "core/names.h"
#include "decode/ngram_drafter.h"
#include "decode/replay.h"
#include "decode/self_drafter.h"

namespace specquant::decode {
namespace {

using core::bad_request;
using core::Error;
using core::ErrorType;
using core::Fields;

constexpr int kLongestNgram = 16;
constexpr double kHighestTemperature = 100.0, kLowestTopP = 1e-6;
constexpr double kAnyNumber = std::numeric_limits<double>::max();

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

void parse_sampling_rule(Fields& fields, Method& method) {
  if (!method.sampling) {
    bad_request("'" + fields.path_of("kind") + "' is 'sampling', so 'sampling' of the run must " +
                R"(say how, e.g. {"temperature": 0.8, "top_p": 0.95, "seed": 1}.)");
  }
  const Sampling sampling = *method.sampling;
  if (sampling.warp.temperature == 0.0) return parse_greedy(fields, method);
  method.make_acceptance = [sampling] { return std::make_unique<SamplingAcceptance>(sampling); };
}

ReplayProfile parse_profile(Fields& fields, const std::string& key, int depth) {
  ReplayProfile profile{fields.numbers(key, -kAnyNumber, kAnyNumber)};
  try {
    profile.validate(depth);
  } catch (const std::invalid_argument& error) {
    bad_request("'" + fields.path_of(key) + "': " + error.what());
  }
  return profile;
}

void parse_replay(Fields& fields, Method& method) {
  Fields profiles = fields.object("profile");
  const uint64_t seed = fields.seed("seed");
  const ReplayProfile profile = parse_profile(profiles, "accepted", method.shape.depth);
  method.make_acceptance = [=] { return std::make_unique<ReplayAcceptance>(profile, seed); };
  if (method.inner_depth == 0 && profiles.has("inner")) {
    bad_request("'" + profiles.path_of("inner") + "' must be left out: there are no rounds " +
                "inside a drafter that is no cascade.");
  }
  if (method.inner_depth != 0) {
    const ReplayProfile inner = parse_profile(profiles, "inner", method.inner_depth);
    // A seed of its own, since places inside a cascade are those of the target's rounds too.
    method.make_inner_acceptance = [=] {
      return std::make_unique<ReplayAcceptance>(inner, scramble(seed));
    };
  }
  profiles.finish();
}

// A kind that this build serves: reads its keys and puts its part into the method.
struct Kind {
  const char* name;
  void (*parse)(Fields&, Method&);
};

constexpr std::array kDrafters{Kind{"none", parse_no_drafter}, Kind{"self", parse_self},
                               Kind{"ngram", parse_ngram}};
constexpr std::array kShapes{Kind{"none", parse_no_shape}, Kind{"chain", parse_chain}};
constexpr std::array kAcceptance{Kind{"greedy", parse_greedy},
                                 Kind{"sampling", parse_sampling_rule},
                                 Kind{"replay", parse_replay}};

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
  parse_part(fields, "shape", "none", kShapes, kProtocolShapes, method);
  parse_part(fields, "drafter", "none", kDrafters, kProtocolDrafters, method);
  // The acceptance last: a profile must fit the shapes.
  const std::string acceptance =
      parse_part(fields, "acceptance", "greedy", kAcceptance, kProtocolAcceptance, method);
  if (sampling && acceptance != "sampling") {
    bad_request("'sampling' is given, but '" + fields.path_of("acceptance") + "' is " +
                core::quoted(acceptance) + R"(; it must be {"kind": "sampling"}.)");
  }
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
