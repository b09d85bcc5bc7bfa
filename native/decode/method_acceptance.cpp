// The acceptance rules that a method may name.
#include <array>
#include <limits>
#include <stdexcept>

#include "core/errors.h"
#include "decode/method_kinds.h"
#include "decode/replay.h"

namespace specquant::decode {
namespace {

using core::bad_request;
using core::Fields;

constexpr double kAnyNumber = std::numeric_limits<double>::max();

// The names that the protocol has.
constexpr std::array kProtocolAcceptance{"greedy", "sampling", "replay"};

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
  const ReplayProfile profile = parse_profile(profiles, "accepted", method.longest());
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

constexpr std::array kAcceptance{Kind{"greedy", parse_greedy},
                                 Kind{"sampling", parse_sampling_rule},
                                 Kind{"replay", parse_replay}};

}  // namespace

std::string parse_acceptance(Fields& fields, const std::string& key, Method& method) {
  return parse_part(fields, key, "greedy", kAcceptance, kProtocolAcceptance, method);
}

std::vector<std::string> acceptance_kinds() { return names_of(kAcceptance); }

}  // namespace specquant::decode
