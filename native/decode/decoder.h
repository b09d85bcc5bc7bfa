// The decode loop: one for every method, batch and device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "decode/acceptance.h"
#include "decode/drafter.h"
#include "decode/prefill.h"
#include "decode/shape_choice.h"
#include "decode/trace.h"

namespace specquant::decode {

struct Job {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<double> arrivals;     // seconds, one a prompt; empty: all at once
  std::vector<int> max_new_tokens;  // one a prompt, 1 or more
  std::vector<int32_t> stop_ids;
  int batch_size = 1;
};

enum class Finish { stop, length };

// Seconds count from the start of the call.
struct RequestResult {
  int prompt_tokens = 0;
  std::vector<int32_t> tokens;
  double queue_s = 0.0, prefill_s = 0.0, ttft_s = 0.0;
  bool ttft_shared = false;
  std::vector<double> round_end_s;
  std::vector<int> round_tokens;
  Finish finish = Finish::length;
};

struct RoundColumns {
  std::vector<double> start_s, draft_s, verify_s, other_s;
  std::vector<int> rows, sequences;
};

struct SequenceRoundColumns {
  std::vector<int> request, round, drafted, reached, accepted, committed;
};

struct RunResult {
  std::vector<RequestResult> requests;
  RoundColumns rounds;
  SequenceRoundColumns sequence_rounds;
  std::optional<LevelColumns> levels;        // of a drafter that verifies itself
  std::optional<ShapeHistory> shape_choice;  // where the shape was chosen by round
  double wall_s = 0.0, decode_s = 0.0;
};

// The parts that a run is composed of. Null: one shape for all rounds, no drafter, no shared
// prefill, no trace.
struct Parts {
  Model& model;
  Precision precision = Precision::fp16;
  Shape shape;
  ShapeChooser* chooser = nullptr;  // of the shape of each round; it has candidates of its own
  Drafter* drafter = nullptr;
  Acceptance& acceptance;
  PrefillCache* prefill_cache = nullptr;
  TraceWriter* trace = nullptr;
};

// Decodes every prompt of a job. The job must fit the model: each prompt, its new tokens and one
// round's drafted tokens lie within the cache, and the batch within its slots.
RunResult decode(const Parts& parts, const Job& job);

}  // namespace specquant::decode
