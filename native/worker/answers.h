// Results as the JSON of docs/protocol.md.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "decode/decoder.h"
#include "decode/score.h"

namespace specquant::worker {

struct ModelIdentity {
  std::string name, content_hash;
  ModelShape shape;
};

nlohmann::json answer_to_load(const Model& model, const ModelIdentity& identity,
                              std::span<const Precision> precisions);
nlohmann::json answer_to_run(const decode::RunResult& result);
nlohmann::json answer_to_score(const decode::ScoredSequence& columns, bool with_reference);

}  // namespace specquant::worker
