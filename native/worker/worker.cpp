#include "worker/worker.h"

#include <algorithm>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/errors.h"
#include "core/json.h"
#include "core/names.h"
#include "core/sha256.h"
#include "decode/score.h"
#include "worker/answers.h"
#include "worker/forward_curve.h"

namespace specquant::worker {
namespace {

using core::Error;
using core::ErrorType;
using core::Fields;
using nlohmann::json;

// Broken text in a message (a line need not be UTF-8) is replaced, never thrown about.
std::string text_of(const json& answer) {
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string error_answer(const json& id, ErrorType type, const std::string& message) {
  return text_of({{"id", id}, {"error", {{"type", core::name_of(type)}, {"message", message}}}});
}

}  // namespace

const Worker::Call Worker::kCalls[] = {{"hello", &Worker::hello}, {"load", &Worker::load},
                                       {"run", &Worker::run},     {"forward", &Worker::forward},
                                       {"score", &Worker::score}, {"close", &Worker::close}};

std::string Worker::answer_to_long_line() {
  return error_answer(
      nullptr, ErrorType::bad_request,
      "The line is longer than " + std::to_string(kMaxLineBytes) + " bytes and was skipped.");
}

std::string Worker::answer(std::string_view line) {
  json id;
  try {
    json request;
    try {
      request = core::parse_json(line);
    } catch (const std::invalid_argument& error) {
      core::bad_request(std::string("The line is no request. ") + error.what());
    }
    if (!request.is_object()) core::bad_request("The line is no request: it is not an object.");
    const auto found = request.find("id");
    if (found == request.end() || !found->is_number_integer()) {
      core::bad_request("'id' must be an integer.");
    }
    id = *found;
    json answer = dispatch(request);
    answer["id"] = id;
    return text_of(answer);
  } catch (const Error& error) {
    if (error.type() == ErrorType::device && !hardware_.usable()) {
      throw Error(error.type(), std::string(error.what()) + " The device is lost to this process.");
    }
    return error_answer(id, error.type(), error.what());
  } catch (const std::bad_alloc&) {
    return error_answer(id, ErrorType::out_of_memory,
                        "There is not enough memory for this request.");
  } catch (const std::exception& error) {
    return error_answer(id, ErrorType::internal, error.what());
  }
}

nlohmann::json Worker::dispatch(const Json& request) {
  Fields fields(request, "");
  fields.has("id");
  const std::string name = fields.text("call");
  std::vector<std::string> names;
  for (const Call& call : kCalls) {
    if (name == call.name) return (this->*call.handle)(fields);
    names.emplace_back(call.name);
  }
  core::bad_request("'call' is " + core::quoted(name) + ", which is unknown. " +
                    core::suggestion(name, names));
}

Worker::Loaded& Worker::loaded() {
  if (!loaded_) core::bad_request("No model is loaded; call 'load' first.");
  return *loaded_;
}

nlohmann::json Worker::hello(Fields& fields) {
  fields.finish();
  if (build_.empty()) build_ = core::own_binary_sha256();
  const Description device = hardware_.description();
  Json calls = Json::array();
  for (const Call& call : kCalls) calls.push_back(call.name);
  Json precisions = Json::array();
  for (const Precision precision : hardware_.precisions()) precisions.push_back(name_of(precision));
  return {{"protocol", kProtocolVersion},
          {"backend", "native"},
          {"version", SPECQUANT_VERSION},
          {"build", build_},
          {"device",
           {{"kind", device.kind},
            {"name", device.name},
            {"isa", device.isa},
            {"threads", device.threads}}},
          {"capabilities",
           {{"calls", calls},
            {"precisions", precisions},
            {"drafters", decode::drafter_kinds()},
            {"shapes", decode::shape_kinds()},
            {"acceptance", decode::acceptance_kinds()},
            {"max_batch", hardware_.max_batch()},
            {"trace", trace_names()}}}};
}

LoadedModel& Worker::Loaded::find(const std::string& id) const {
  return **std::ranges::find_if(models, [&](const auto& m) { return m->source().id == id; });
}

void Worker::Loaded::take_off() {
  prefill.clear();
  for (const auto& model : models) model->take_off();
}

void Worker::put_on_device(Loaded& loaded) {
  for (const auto& model : loaded.models) {
    model->put_on(hardware_, model->is_head() ? &loaded.find(model->target_id()) : nullptr,
                  loaded.request.max_batch, loaded.request.max_context);
  }
}

nlohmann::json Worker::load(Fields& fields) {
  auto fresh = std::make_unique<Loaded>();
  fresh->request = parse_load(fields, hardware_);
  const LoadRequest& request = fresh->request;
  fresh->models = open_models(request.target, request.drafters, request.max_context);
  fresh->limits = {.precisions = request.target.precisions,
                   .drafters = {},
                   .max_context = request.max_context,
                   .max_batch = request.max_batch,
                   .vocabulary = fresh->target().shape().vocabulary};
  for (const auto& model : std::span(fresh->models).subspan(1)) {
    fresh->limits.drafters.push_back(
        {model->source().id, model->source().precisions, model->is_head(), model->target_id()});
  }

  // Two loads at once would need, and report, the memory of both.
  std::unique_ptr<Loaded> former = std::move(loaded_);
  if (former) former->take_off();
  try {
    put_on_device(*fresh);
  } catch (...) {
    fresh->take_off();
    if (former) {
      put_on_device(*former);
      loaded_ = std::move(former);
    }
    throw;
  }
  loaded_ = std::move(fresh);
  return answer_to_load(loaded_->models);
}

nlohmann::json Worker::run(Fields& fields) {
  Loaded& held = loaded();
  const RunRequest request = parse_run(fields, held.limits);
  if (request.clear_prefill) held.prefill.clear();
  Model& model = held.target().model();
  std::optional<decode::TraceWriter> trace;
  if (request.trace == Trace::tokens) trace.emplace(request.trace_path);
  std::map<std::string, decode::LoadedDrafter> drafters;
  for (const DrafterLimits& drafter : held.limits.drafters) {
    drafters.emplace(drafter.id, decode::LoadedDrafter{held.find(drafter.id).model(),
                                                       held.find(drafter.id).taps()});
  }
  const std::unique_ptr<decode::Acceptance> acceptance = request.method.make_acceptance();
  const std::unique_ptr<decode::Acceptance> inner_acceptance =
      request.method.make_inner_acceptance();
  std::unique_ptr<decode::Drafter> drafter;
  if (request.method.make_drafter) {
    drafter =
        request.method.make_drafter({model, request.job.batch_size, drafters, *inner_acceptance});
  }
  std::optional<decode::ShapeChooser> chooser;
  if (!request.method.candidates.empty()) chooser.emplace(request.method.candidates);
  return answer_to_run(
      decode::decode({.model = model,
                      .precision = request.method.precision,
                      .shape = request.method.shape,
                      .chooser = chooser ? &*chooser : nullptr,
                      .drafter = drafter.get(),
                      .acceptance = *acceptance,
                      .prefill_cache = request.share_prefill ? &held.prefill : nullptr,
                      .trace = trace ? &*trace : nullptr},
                     request.job));
}

nlohmann::json Worker::forward(Fields& fields) {
  Loaded& held = loaded();
  const ForwardRequest request = parse_forward(fields, held.limits);
  const LoadedModel& timed = held.find(request.model);
  Model& model = timed.model();
  Json times = Json::object();
  for (auto& [rows, seconds] : forward_times(model, request)) times[std::to_string(rows)] = seconds;
  return {{"times", times},
          {"bandwidth_bytes_s", timed.device().read_bandwidth()},
          {"bytes_per_token", model.proof(request.precision).bytes_per_token}};
}

nlohmann::json Worker::score(Fields& fields) {
  Loaded& held = loaded();
  const ScoreRequest request = parse_score(fields, held.limits);
  Json sequences = Json::array();
  for (const std::vector<int32_t>& tokens : request.sequences) {
    sequences.push_back(answer_to_score(decode::score(held.target().model(), held.limits.max_batch,
                                                      request.precision, request.reference, tokens),
                                        request.reference.has_value()));
  }
  return {{"sequences", sequences}};
}

nlohmann::json Worker::close(Fields& fields) {
  fields.finish();
  closed_ = true;
  return {{"closed", true}};
}

}  // namespace specquant::worker
