// The requests of docs/protocol.md as values, read from JSON and checked against what is loaded.
// Every function throws core::Error and names the key, the prompt or the position.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/fields.h"
#include "core/synthetic_model.h"
#include "decode/decoder.h"
#include "decode/method.h"
#include "worker/hardware.h"

namespace specquant::worker {

// What the last load fixed, as far as later requests must fit it.
struct Limits {
  std::vector<Precision> precisions;
  int max_context = 0;
  int max_batch = 0;
  int vocabulary = 0;
};

struct LoadRequest {
  std::string path;  // empty for a synthetic model
  std::optional<core::SyntheticModel> synthetic;
  std::vector<Precision> precisions;
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
