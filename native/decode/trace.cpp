#include "decode/trace.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/errors.h"
#include "decode/distribution.h"

namespace specquant::decode {
namespace {

static_assert(std::endian::native == std::endian::little, "trace rows are written as they lie");

constexpr std::size_t kHeldRows = 1U << 14;
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr uint16_t kAccepted = 0, kRejected = 1, kDiscarded = 2;

float rounded(double value) { return static_cast<float>(value); }

// Depth of each row below row 0.
std::vector<int> depths_of(const Proposal& proposal) {
  std::vector<int> depths{0};
  for (const int parent : proposal.parents) {
    depths.push_back(depths[static_cast<std::size_t>(parent)] + 1);
  }
  return depths;
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path)
    : path_(path), file_(path, std::ios::binary | std::ios::trunc) {
  if (!file_) {
    throw core::Error(core::ErrorType::bad_request,
                      "'trace_path': the file " + path + " cannot be written.");
  }
}

void TraceWriter::add(const TracedRound& round, const Proposal& proposal,
                      const TargetRows& target) {
  const std::vector<int> depths = depths_of(proposal);
  const std::span<const int> kept = round.path.first(static_cast<std::size_t>(round.accepted));
  const int end_of_path = kept.empty() ? 0 : kept.back();
  bool refused_one = false;
  for (int row = 1; row < proposal.rows(); ++row) {
    const auto node = static_cast<std::size_t>(row) - 1;
    const int parent = proposal.parents[node];
    TraceRow out;
    out.request = static_cast<uint32_t>(round.request);
    out.round = static_cast<uint32_t>(round.round);
    out.draft_position = static_cast<uint16_t>(node);
    out.output_position =
        static_cast<uint32_t>(round.output_length + depths[static_cast<std::size_t>(row)] - 1);
    out.prompt_length = static_cast<uint32_t>(round.prompt_length);
    const bool accepted = std::ranges::find(kept, row) != kept.end();
    const bool rejected = !accepted && round.refused && parent == end_of_path;
    out.status = accepted ? kAccepted : rejected ? kRejected : kDiscarded;
    // Of refused siblings the most probable, which is the first, stands for their level, as in the
    // counts of the rounds.
    out.flags = accepted || (rejected && !refused_one) ? 1 : 0;
    refused_one = refused_one || rejected;

    out.token = proposal.tokens[node];
    const Distribution seen(target.logits(parent));
    out.target_top1 = seen.top();
    out.target_prob = rounded(seen.probability(out.token));
    out.target_top1_prob = rounded(seen.probability(seen.top()));
    out.margin = rounded(seen.margin());
    if (const auto logits = proposal.logits_after(parent); !logits.empty()) {
      const Distribution drafted(logits);
      out.draft_top1 = proposal.token_of(drafted.top());
      out.draft_prob = rounded(drafted.probability(proposal.entry_of(out.token)));
      out.draft_top1_prob = rounded(drafted.probability(drafted.top()));
      // A drafter of fewer tokens gives the others no probability at all.
      out.kl = proposal.vocabulary.empty() ? rounded(seen.divergence(drafted)) : kNotANumber;
    } else {
      // Such a drafter has one opinion and no probabilities.
      out.draft_top1 = out.token;
      out.draft_prob = out.draft_top1_prob = out.kl = kNotANumber;
    }
    rows_.push_back(out);
  }
  if (rows_.size() >= kHeldRows) flush();
}

void TraceWriter::flush() {
  file_.write(reinterpret_cast<const char*>(rows_.data()),
              static_cast<std::streamsize>(rows_.size() * sizeof(TraceRow)));
  file_.flush();
  rows_.clear();
  if (!file_) {
    throw core::Error(core::ErrorType::internal,
                      "The token trace " + path_ + " could not be written; is the disk full?");
  }
}

}  // namespace specquant::decode
