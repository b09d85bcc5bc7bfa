#include "worker/answers.h"

#include "core/memory.h"

namespace specquant::worker {
namespace {

using nlohmann::json;

json answer_to_request(const decode::RequestResult& request) {
  return {{"prompt_tokens", request.prompt_tokens},
          {"output_tokens", request.tokens.size()},
          {"tokens", request.tokens},
          {"queue_s", request.queue_s},
          {"prefill_s", request.prefill_s},
          {"ttft_shared", request.ttft_shared},
          {"ttft_s", request.ttft_s},
          {"round_end_s", request.round_end_s},
          {"round_tokens", request.round_tokens},
          {"finish", request.finish == decode::Finish::stop ? "stop" : "length"}};
}

// How the model is computed at each of its precisions.
json proofs_of(const LoadedModel& loaded) {
  json proofs = json::object();
  json compute = json::object();
  for (const Precision precision : loaded.source().precisions) {
    const Proof proof = loaded.model().proof(precision);
    proofs[name_of(precision)] = {{"kernels", proof.kernels},
                                  {"bytes_per_token", proof.bytes_per_token}};
    compute[name_of(precision)] = proof.compute_dtype;
  }
  return {{"proof", proofs}, {"compute_dtype", compute}};
}

json identity_of(const LoadedModel& loaded) {
  return {{"name", loaded.name()},
          {"vocab_size", loaded.shape().vocabulary},
          {"max_position", loaded.shape().max_position},
          {"content_hash", loaded.content_hash()}};
}

json answer_to_choice(const decode::ShapeHistory& history) {
  json switches = json::array();
  for (const decode::ShapeSwitch& entry : history.switches) {
    switches.push_back({{"round", entry.round},
                        {"from", entry.from},
                        {"to", entry.to},
                        {"predicted_speedup", entry.predicted_speedup}});
  }
  return {{"predicted_speedup", history.predicted_speedup},
          {"measured_speedup", history.measured_speedup},
          {"calibration_s", history.calibration_s},
          {"switches", switches}};
}

}  // namespace

json answer_to_load(std::span<const std::unique_ptr<LoadedModel>> models) {
  MemoryUse all;
  json drafters = json::object();
  for (const auto& loaded : models) {
    const MemoryUse memory = loaded->model().memory();
    for (const auto& [kind, bytes] : memory.weight_bytes) all.weight_bytes[kind] += bytes;
    all.kv_bytes += memory.kv_bytes;
    if (loaded == models[0]) continue;
    json drafter = proofs_of(*loaded);
    drafter["memory"] = {{"weight_bytes", memory.weight_bytes}, {"kv_bytes", memory.kv_bytes}};
    drafter["model"] = identity_of(*loaded);
    drafters[loaded->source().id] = drafter;
  }
  json answer = proofs_of(*models[0]);
  answer["model"] = identity_of(*models[0]);
  answer["drafters"] = drafters;
  answer["memory"] = {{"weight_bytes", all.weight_bytes},
                      {"kv_bytes", all.kv_bytes},
                      {"peak_bytes", core::peak_memory()}};
  return answer;
}

json answer_to_run(const decode::RunResult& result) {
  json requests = json::array();
  for (const decode::RequestResult& request : result.requests) {
    requests.push_back(answer_to_request(request));
  }
  json answer = {{"requests", requests},
                 {"rounds",
                  {{"start_s", result.rounds.start_s},
                   {"draft_s", result.rounds.draft_s},
                   {"verify_s", result.rounds.verify_s},
                   {"other_s", result.rounds.other_s},
                   {"rows", result.rounds.rows},
                   {"sequences", result.rounds.sequences}}},
                 {"sequence_rounds",
                  {{"request", result.sequence_rounds.request},
                   {"round", result.sequence_rounds.round},
                   {"drafted", result.sequence_rounds.drafted},
                   {"reached", result.sequence_rounds.reached},
                   {"accepted", result.sequence_rounds.accepted},
                   {"committed", result.sequence_rounds.committed}}},
                 {"wall_s", result.wall_s},
                 {"decode_s", result.decode_s},
                 {"memory", {{"peak_bytes", core::peak_memory()}}}};
  if (result.shape_choice) answer["shape_choice"] = answer_to_choice(*result.shape_choice);
  if (result.levels) {
    answer["levels"] = {{"request", result.levels->request},
                        {"drafted", result.levels->drafted},
                        {"reached", result.levels->reached},
                        {"accepted", result.levels->accepted},
                        {"committed", result.levels->committed}};
  }
  return answer;
}

json answer_to_score(const decode::ScoredSequence& columns, bool with_reference) {
  json answer = {
      {"top1", columns.top1}, {"top1_logprob", columns.top1_logprob}, {"logprob", columns.logprob}};
  if (with_reference) {
    answer["ref_top1"] = columns.ref_top1;
    answer["ref_logprob"] = columns.ref_logprob;
    answer["margin"] = columns.margin;
    answer["kl"] = columns.kl;
  }
  return answer;
}

}  // namespace specquant::worker
