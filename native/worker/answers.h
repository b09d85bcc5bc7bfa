// Results as the JSON of docs/protocol.md.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "decode/decoder.h"
#include "decode/score.h"
#include "worker/loaded_model.h"

namespace specquant::worker {

// The target first, then the drafters.
nlohmann::json answer_to_load(std::span<const std::unique_ptr<LoadedModel>> models);
nlohmann::json answer_to_run(const decode::RunResult& result);
nlohmann::json answer_to_score(const decode::ScoredSequence& columns, bool with_reference);

}  // namespace specquant::worker
