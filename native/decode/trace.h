// The token trace of a run: one row for each drafted token (docs/protocol.md).
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "decode/acceptance.h"
#include "decode/proposal.h"

namespace specquant::decode {

struct TraceRow {
  uint32_t request = 0, round = 0;
  uint16_t draft_position = 0, status = 0;  // status: 0 accepted, 1 rejected, 2 discarded
  uint32_t output_position = 0;
  int32_t token = 0, draft_top1 = 0, target_top1 = 0;
  float draft_prob = 0, target_prob = 0, draft_top1_prob = 0, target_top1_prob = 0;
  float margin = 0, kl = 0;
  uint32_t prompt_length = 0;
  uint32_t flags = 0;  // bit 0: reached
  uint32_t reserved = 0;
};
static_assert(sizeof(TraceRow) == 64, "the layout of docs/protocol.md");

// What one sequence did in one round.
struct TracedRound {
  int request = 0, round = 0;
  int prompt_length = 0;
  int output_length = 0;  // before the round
  int accepted = 0;       // tokens of `path` that were kept
  bool refused = false;   // the rule refused a child of the path's end
  std::span<const int> path;
};

class TraceWriter {
 public:
  // Throws core::Error (`bad_request`) where the file cannot be made.
  explicit TraceWriter(const std::string& path);

  void add(const TracedRound& round, const Proposal& proposal, const TargetRows& target);

  // Writes what is held. Throws core::Error (`internal`) where that fails, e.g. on a full disk.
  void flush();

 private:
  std::string path_;
  std::ofstream file_;
  std::vector<TraceRow> rows_;
};

}  // namespace specquant::decode
