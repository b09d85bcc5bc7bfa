// The requests of docs/protocol.md as values, read from JSON and checked against what is loaded.
// Every function throws core::Error and names the key, the prompt or the position.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/fields.h"
#include "decode/decoder.h"
#include "decode/method.h"
#include "worker/hardware.h"
#include "worker/loaded_model.h"

namespace specquant::worker {

// What a loaded drafter serves.
struct DrafterLimits {
  std::string id;
  std::vector<Precision> precisions;
  bool head = false;
  std::string target;  // of a head: the id of the model whose features it reads
};

// What the last load fixed, as far as later requests must fit it.
struct Limits {
  std::vector<Precision> precisions;  // of the target
  std::vector<DrafterLimits> drafters;
  int max_context = 0;
  int max_batch = 0;
  int vocabulary = 0;
};

struct LoadRequest {
  ModelSource target;
  std::vector<ModelSource> drafters;
  int max_context = 0;
  int max_batch = 0;
};

enum class Trace { none, rounds, tokens };

struct RunRequest {
  decode::Method method;
  decode::Job job;
  bool share_prefill = false;
  bool clear_prefill = false;
  Trace trace = Trace::none;
  std::string trace_path;
};

struct ForwardRequest {
  std::string model;  // decode::kTargetId or a drafter's
  Precision precision = Precision::fp16;
  std::set<int> rows;  // numbers of rows to time
  bool tree = false;
  int context = 0;
  int batch = 1;
  int repeats = 1;
};

struct ScoreRequest {
  std::vector<std::vector<int32_t>> sequences;
  Precision precision = Precision::fp16;
  std::optional<Precision> reference;
};

LoadRequest parse_load(core::Fields& fields, const Hardware& hardware);
RunRequest parse_run(core::Fields& fields, const Limits& limits);
ForwardRequest parse_forward(core::Fields& fields, const Limits& limits);
ScoreRequest parse_score(core::Fields& fields, const Limits& limits);

std::vector<std::string> trace_names();

}  // namespace specquant::worker
