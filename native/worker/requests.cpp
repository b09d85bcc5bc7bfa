#include "worker/requests.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/errors.h"
#include "core/names.h"

namespace specquant::worker {
namespace {

using core::bad_request;
using core::Error;
using core::ErrorType;
using core::Fields;

constexpr int kMaxContext = 1 << 24;
constexpr int kMaxRepeats = 100000;
constexpr int kMaxTreeRows = decode::kMaxDrafted + 1;
constexpr double kMaxArrival = 1e6;  // seconds
constexpr int kAnyInteger = std::numeric_limits<int>::max();

struct TraceName {
  const char* name;
  Trace trace;
};
constexpr std::array kTraces{TraceName{"none", Trace::none}, TraceName{"rounds", Trace::rounds},
                             TraceName{"tokens", Trace::tokens}};

std::vector<std::string> names_of(std::span<const Precision> precisions) {
  std::vector<std::string> names;
  for (const Precision precision : precisions) names.emplace_back(name_of(precision));
  return names;
}

// `loaded` are the precisions of `model`.
void require_loaded(Precision precision, std::span<const Precision> loaded,
                    const std::string& model) {
  if (std::ranges::find(loaded, precision) != loaded.end()) return;
  bad_request("The precision " + core::quoted(name_of(precision)) + " was not loaded for " +
              core::quoted(model) + ". Name it in its 'precisions' of 'load'; loaded are " +
              core::list_of(names_of(loaded)) + ".");
}

Precision loaded_precision(Fields& fields, const std::string& key,
                           std::span<const Precision> loaded, const std::string& model) {
  const Precision precision = decode::parse_precision_at(fields, key);
  require_loaded(precision, loaded, model);
  return precision;
}

const DrafterLimits* find_drafter(const Limits& limits, const std::string& id) {
  const auto found = std::ranges::find(limits.drafters, id, &DrafterLimits::id);
  return found == limits.drafters.end() ? nullptr : &*found;
}

std::vector<std::string> drafter_ids(const Limits& limits) {
  std::vector<std::string> ids;
  for (const DrafterLimits& drafter : limits.drafters) ids.push_back(drafter.id);
  return ids;
}

// A drafter that a method uses must be loaded, of the kind and for the model that the method says.
void require_usable(const decode::DrafterUse& use, const Limits& limits) {
  const std::string where = "'" + use.path + "' is " + core::quoted(use.id);
  const DrafterLimits* drafter = find_drafter(limits, use.id);
  if (drafter == nullptr) {
    const std::vector<std::string> ids = drafter_ids(limits);
    bad_request(where + ", which was not loaded. Name it in the 'drafters' of 'load'. " +
                (ids.empty() ? "None is loaded." : core::suggestion(use.id, ids)));
  }
  if (drafter->head != use.head) {
    bad_request(where + ", which is " + (drafter->head ? "a draft head" : "a model") +
                "; its kind is '" + (drafter->head ? "head" : "model") + "'.");
  }
  if (use.head && drafter->target != use.target) {
    bad_request(where + ", a head for " + core::quoted(drafter->target) + "; here it would draft " +
                "for " + core::quoted(use.target) + ". Say so with 'target' in 'load'.");
  }
  require_loaded(use.precision, drafter->precisions, use.id);
}

std::vector<Precision> parse_precisions(Fields& fields, const Hardware& hardware) {
  const std::string path = "'" + fields.path_of("precisions") + "'";
  const std::vector<std::string> names = fields.texts("precisions");
  if (names.empty()) bad_request(path + " is empty; name all that methods will use.");
  const std::vector<Precision> served = hardware.precisions();
  std::vector<Precision> precisions;
  for (const std::string& name : names) {
    Precision precision = Precision::fp16;
    try {
      precision = parse_precision(name);
    } catch (const std::invalid_argument& error) {
      bad_request(path + ": " + error.what());
    }
    if (std::ranges::find(served, precision) == served.end()) {
      throw Error(ErrorType::unsupported, path + ": " + core::quoted(name) +
                                              " is not served by this device. It serves " +
                                              core::list_of(names_of(served)) + ".");
    }
    if (std::ranges::find(precisions, precision) == precisions.end()) {
      precisions.push_back(precision);
    }
  }
  return precisions;
}

// Reads `path` or `synthetic`; `key` is that of the model, for messages.
ModelSource parse_source(Fields& fields, const std::string& key) {
  ModelSource source;
  source.key = key;
  const bool synthetic = fields.has("synthetic");
  if (synthetic == fields.has("path")) {
    bad_request("'" + key + "' needs either 'path' or 'synthetic'.");
  }
  if (synthetic) {
    source.synthetic =
        core::synthetic_model_of(fields.value("synthetic"), fields.path_of("synthetic"));
  } else {
    source.path = fields.text("path");
  }
  return source;
}

std::vector<ModelSource> parse_drafters(Fields& fields, const Hardware& hardware) {
  std::vector<ModelSource> drafters;
  if (!fields.has("drafters")) return drafters;
  const nlohmann::json& list = fields.value("drafters");
  if (!list.is_array()) bad_request("'drafters' must be a list.");
  for (const nlohmann::json& entry : list) {
    const std::string key = "drafters[" + std::to_string(drafters.size()) + "]";
    if (!entry.is_object()) bad_request("'" + key + "' must be an object.");
    Fields drafter(entry, key);
    ModelSource source = parse_source(drafter, key);
    source.id = drafter.text("id");
    source.precisions = parse_precisions(drafter, hardware);
    source.target_id = drafter.has("target") ? drafter.text("target") : decode::kTargetId;
    drafter.finish();
    if (source.id.empty() || source.id == decode::kTargetId) {
      bad_request("'" + key + ".id' is " + core::quoted(source.id) +
                  "; give the drafter a name of " + "its own.");
    }
    if (std::ranges::find(drafters, source.id, &ModelSource::id) != drafters.end()) {
      bad_request("'" + key + ".id' is " + core::quoted(source.id) +
                  ", as that of a drafter before it.");
    }
    drafters.push_back(std::move(source));
  }
  return drafters;
}

// A list of token lists; `what` names one of them in messages.
std::vector<std::vector<int32_t>> token_lists(Fields& fields, const std::string& key,
                                              const std::string& what, std::size_t shortest,
                                              const Limits& limits) {
  const nlohmann::json& outer = fields.value(key);
  if (!outer.is_array() || outer.empty()) {
    bad_request("'" + key + "' must be a list with at least one list of token ids.");
  }
  std::vector<std::vector<int32_t>> lists;
  for (const nlohmann::json& inner : outer) {
    const std::string name = what + " " + std::to_string(lists.size());
    if (!inner.is_array()) bad_request(name + " must be a list of token ids.");
    if (inner.size() < shortest) {
      bad_request(
          name + (inner.empty() ? " is empty" : " has " + std::to_string(inner.size()) + " token") +
          "; it needs at least " + std::to_string(shortest) + ".");
    }
    std::vector<int32_t> tokens =
        core::integers_of(inner, key + "[" + std::to_string(lists.size()) + "]",
                          std::numeric_limits<int>::min(), kAnyInteger);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= 0 && tokens[i] < limits.vocabulary) continue;
      bad_request(name + ", position " + std::to_string(i) + ": token id " +
                  std::to_string(tokens[i]) + " is outside the vocabulary of " +
                  std::to_string(limits.vocabulary) + ".");
    }
    lists.push_back(std::move(tokens));
  }
  return lists;
}

std::vector<int> new_token_limits(Fields& fields, std::size_t prompts) {
  const std::string key = "max_new_tokens";
  if (!fields.value(key).is_array()) {
    return std::vector<int>(prompts, fields.integer(key, 1, kMaxContext));
  }
  std::vector<int> limits = fields.integers(key, 1, kMaxContext);
  if (limits.size() != prompts) {
    bad_request("'max_new_tokens' has " + std::to_string(limits.size()) + " entries for " +
                std::to_string(prompts) + " prompts.");
  }
  return limits;
}

void require_room(const decode::Job& job, int drafted, int max_context) {
  for (std::size_t i = 0; i < job.prompts.size(); ++i) {
    const int64_t prompt = static_cast<int64_t>(job.prompts[i].size());
    if (prompt + job.max_new_tokens[i] + drafted <= max_context) continue;
    bad_request("prompt " + std::to_string(i) + " needs " + std::to_string(prompt) + " + " +
                std::to_string(job.max_new_tokens[i]) + " + " + std::to_string(drafted) +
                " tokens (prompt, output, drafted); the model was loaded with 'max_context' " +
                std::to_string(max_context) + ".");
  }
}

void parse_trace(Fields& fields, RunRequest& request) {
  const bool has_path = fields.has("trace_path");
  if (fields.has("trace")) {
    const std::string name = fields.text("trace");
    const auto* found =
        std::ranges::find_if(kTraces, [&](const TraceName& known) { return name == known.name; });
    if (found == kTraces.end()) {
      bad_request("'trace' is " + core::quoted(name) + ", which is unknown. " +
                  core::suggestion(name, trace_names()));
    }
    request.trace = found->trace;
  }
  if (request.trace == Trace::tokens) {
    if (!has_path) bad_request("'trace' is 'tokens', so 'trace_path' must name a file.");
    request.trace_path = fields.text("trace_path");
  }
}

}  // namespace

LoadRequest parse_load(Fields& fields, const Hardware& hardware) {
  LoadRequest request;
  Fields model = fields.object("model");
  request.target = parse_source(model, "model");
  model.finish();
  request.target.id = decode::kTargetId;
  request.target.precisions = parse_precisions(fields, hardware);
  request.drafters = parse_drafters(fields, hardware);
  request.max_context = fields.integer("max_context", 1, kMaxContext);
  request.max_batch = fields.integer("max_batch", 1, hardware.max_batch());
  if (fields.has("seed")) fields.seed("seed");
  fields.finish();
  return request;
}

RunRequest parse_run(Fields& fields, const Limits& limits) {
  RunRequest request;
  std::optional<decode::Sampling> sampling;
  if (fields.has("sampling")) sampling = decode::parse_sampling(fields.object("sampling"));
  request.method = decode::parse_method(fields.object("method"), sampling);
  for (const Precision precision : request.method.precisions) {
    require_loaded(precision, limits.precisions, decode::kTargetId);
  }
  for (const decode::DrafterUse& use : request.method.uses) require_usable(use, limits);

  decode::Job& job = request.job;
  job.prompts = token_lists(fields, "prompts", "prompt", 1, limits);
  job.max_new_tokens = new_token_limits(fields, job.prompts.size());
  if (fields.has("arrivals")) {
    job.arrivals = fields.numbers("arrivals", 0.0, kMaxArrival);
    if (job.arrivals.size() != job.prompts.size()) {
      bad_request("'arrivals' has " + std::to_string(job.arrivals.size()) + " entries for " +
                  std::to_string(job.prompts.size()) + " prompts.");
    }
  }
  job.batch_size = fields.has("batch_size") ? fields.integer("batch_size", 1, limits.max_batch) : 1;
  if (fields.has("stop_ids")) job.stop_ids = fields.integers("stop_ids", 0, limits.vocabulary - 1);
  require_room(job, request.method.room(), limits.max_context);

  request.share_prefill = fields.has("share_prefill") && fields.flag("share_prefill");
  if (fields.has("prefill_cache")) {
    Fields cache = fields.object("prefill_cache");
    request.clear_prefill = cache.has("clear") && cache.flag("clear");
    cache.finish();
  }
  parse_trace(fields, request);
  fields.finish();
  return request;
}

ForwardRequest parse_forward(Fields& fields, const Limits& limits) {
  ForwardRequest request;
  request.model = fields.has("model") ? fields.text("model") : decode::kTargetId;
  std::span<const Precision> loaded = limits.precisions;
  if (request.model != decode::kTargetId) {
    const DrafterLimits* drafter = find_drafter(limits, request.model);
    if (drafter == nullptr) {
      std::vector<std::string> known = drafter_ids(limits);
      known.insert(known.begin(), decode::kTargetId);
      bad_request("'model' is " + core::quoted(request.model) + ", which was not loaded. " +
                  core::suggestion(request.model, known));
    }
    loaded = drafter->precisions;
  }
  request.precision = loaded_precision(fields, "precision", loaded, request.model);
  const std::vector<std::string> masks{"chain", "tree"};
  const std::string mask = fields.has("mask") ? fields.text("mask") : masks[0];
  if (std::ranges::find(masks, mask) == masks.end()) {
    bad_request("'mask' is " + core::quoted(mask) + ", which is unknown. " +
                core::suggestion(mask, masks));
  }
  request.tree = mask == "tree";
  request.context = fields.integer("context", 0, limits.max_context);
  const std::vector<int> rows =
      fields.integers("tokens", 1, request.tree ? kMaxTreeRows : limits.max_context);
  if (rows.empty()) bad_request("'tokens' is empty; name at least one number of rows.");
  request.rows.insert(rows.begin(), rows.end());
  const int most = *request.rows.rbegin();
  if (most > limits.max_context - request.context) {
    bad_request("'context' " + std::to_string(request.context) + " and " + std::to_string(most) +
                " tokens exceed the 'max_context' of " + std::to_string(limits.max_context) +
                " that the model was loaded with.");
  }
  request.batch = fields.has("batch") ? fields.integer("batch", 1, limits.max_batch) : 1;
  request.repeats = fields.has("repeats") ? fields.integer("repeats", 1, kMaxRepeats) : 1;
  fields.finish();
  return request;
}

ScoreRequest parse_score(Fields& fields, const Limits& limits) {
  ScoreRequest request;
  request.precision = loaded_precision(fields, "precision", limits.precisions, decode::kTargetId);
  if (fields.has("reference"))
    request.reference = loaded_precision(fields, "reference", limits.precisions, decode::kTargetId);
  request.sequences = token_lists(fields, "sequences", "sequence", 2, limits);
  for (std::size_t i = 0; i < request.sequences.size(); ++i) {
    if (request.sequences[i].size() <= static_cast<std::size_t>(limits.max_context)) continue;
    bad_request("sequence " + std::to_string(i) + " has " +
                std::to_string(request.sequences[i].size()) +
                " tokens; the model was loaded with 'max_context' " +
                std::to_string(limits.max_context) + ".");
  }
  fields.finish();
  return request;
}

std::vector<std::string> trace_names() {
  std::vector<std::string> names;
  for (const TraceName& trace : kTraces) names.emplace_back(trace.name);
  return names;
}

}  // namespace specquant::worker
