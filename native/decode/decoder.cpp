#include "decode/decoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "decode/round_shapes.h"
#include "decode/shape_calibration.h"
#include "decode/verification.h"

namespace specquant::decode {
namespace {

// A request that holds a slot. All of `tokens` but the last are in the target's cache.
struct Sequence {
  int request = 0;
  int slot = 0;
  std::vector<int32_t> tokens;  // prompt and output
  int prompt_length = 0;
  int max_new_tokens = 0;
  int undrafted = 0;  // tokens that were committed since the drafter drafted last

  int output_length() const { return static_cast<int>(tokens.size()) - prompt_length; }
  int remaining() const { return max_new_tokens - output_length(); }
  int cached() const { return static_cast<int>(tokens.size()) - 1; }
};

// What verification made of one proposal.
struct Outcome {
  int drafted = 0, reached = 0, accepted = 0, committed = 0;
  bool finished = false;
};

class Run {
 public:
  Run(const Parts& parts, const Job& job);
  RunResult execute();

 private:
  const Parts& parts_;
  const Job& job_;
  core::Stopwatch clock_;
  Want want_;  // of each row of the target
  RunResult result_;

  std::vector<int> queue_;  // requests in the order of their arrival
  std::size_t next_ = 0;    // index into queue_
  std::vector<int> free_slots_;
  std::vector<Sequence> active_;
  RoundShapes shapes_;
  double mark_ = 0.0;  // end of the last accounted stretch of time

  // One entry an active sequence, kept between rounds for their memory.
  std::vector<Draftable> draftables_;
  std::vector<Proposal> proposals_;
  std::vector<Verifiable> verifiables_;
  Verification verification_;
  Verdict verdict_;

  double arrival(int request) const {
    return job_.arrivals.empty() ? 0.0 : job_.arrivals[static_cast<std::size_t>(request)];
  }
  bool is_stop(int32_t token) const {
    return std::ranges::find(job_.stop_ids, token) != job_.stop_ids.end();
  }
  void admit();
  void start(int request);
  void round();
  void draft();
  int verify();
  Outcome judge(std::size_t index);
  void inform_drafter(int slot, const TargetRows& target);
  bool commit(Sequence& sequence, int32_t token);
};

Run::Run(const Parts& parts, const Job& job)
    : parts_(parts),
      job_(job),
      want_(parts.acceptance.want()),
      queue_(job.prompts.size()),
      shapes_(parts.shape, parts.chooser, job.batch_size),
      proposals_(static_cast<std::size_t>(job.batch_size)) {
  want_.rows = LogitRows::all;
  want_.logits = want_.logits || parts.trace != nullptr;
  if (parts.drafter != nullptr) want_.taps = parts.drafter->taps();
  result_.requests.resize(job.prompts.size());
  std::iota(queue_.begin(), queue_.end(), 0);
  std::ranges::stable_sort(queue_, {}, [this](int request) { return arrival(request); });
  for (int slot = job.batch_size; slot-- > 0;) free_slots_.push_back(slot);
}

RunResult Run::execute() {
  while (true) {
    admit();
    if (!active_.empty()) {
      round();
    } else if (next_ < queue_.size()) {
      clock_.sleep_until(arrival(queue_[next_]));
    } else {
      break;
    }
  }
  if (parts_.trace != nullptr) parts_.trace->flush();
  result_.wall_s = clock_.seconds();
  if (parts_.drafter != nullptr && parts_.drafter->levels() != nullptr) {
    result_.levels = *parts_.drafter->levels();
  }
  if (parts_.chooser != nullptr) result_.shape_choice = parts_.chooser->history();
  return std::move(result_);
}

// Gives free slots to the next prompts that have arrived.
void Run::admit() {
  while (!free_slots_.empty() && next_ < queue_.size() &&
         arrival(queue_[next_]) <= clock_.seconds()) {
    start(queue_[next_++]);
    mark_ = clock_.seconds();
  }
  if (active_.empty()) mark_ = clock_.seconds();
}

void Run::start(int request) {
  const auto index = static_cast<std::size_t>(request);
  const std::vector<int32_t>& prompt = job_.prompts[index];
  const int slot = free_slots_.back();
  RequestResult& result = result_.requests[index];
  result.prompt_tokens = static_cast<int>(prompt.size());

  const double begin = clock_.seconds();
  result.queue_s = begin - arrival(request);
  Want want = parts_.acceptance.want();
  want.taps = want_.taps;
  const HeldPrompt* held = parts_.prefill_cache == nullptr
                               ? nullptr
                               : parts_.prefill_cache->find(parts_.precision, prompt, want);
  Prefilled computed;
  if (held != nullptr) {
    parts_.model.restore(slot, held->cache);
    result.ttft_shared = true;
  } else {
    computed = prefill(parts_.model, parts_.precision, slot, prompt, want);
  }
  const TargetRow& row = held != nullptr ? held->row : computed.row;
  const double prefilled = clock_.seconds();
  const double target_seconds = held != nullptr ? held->seconds : prefilled - begin;
  if (parts_.drafter != nullptr) {
    const std::vector<float>* known = held != nullptr ? held->find_features(want.taps) : nullptr;
    parts_.drafter->begin(slot, prompt, known != nullptr ? *known : computed.features);
  }
  const double ready = clock_.seconds();
  const int32_t first = parts_.acceptance.first({request, result.prompt_tokens}, row);
  const double chosen = clock_.seconds();
  result.prefill_s = target_seconds + (ready - prefilled);
  result.ttft_s = result.queue_s + result.prefill_s + (chosen - ready);
  result.round_end_s.push_back(chosen);
  result.round_tokens.push_back(1);
  if (held == nullptr && parts_.prefill_cache != nullptr) {
    HeldPrompt fresh{.cache = parts_.model.save(slot, result.prompt_tokens),
                     .row = std::move(computed.row),
                     .features = {},
                     .seconds = target_seconds};
    if (!want.taps.empty()) {
      fresh.features.try_emplace({want.taps.begin(), want.taps.end()},
                                 std::move(computed.features));
    }
    parts_.prefill_cache->hold(parts_.precision, prompt, std::move(fresh));
  }

  Sequence sequence{.request = request,
                    .slot = slot,
                    .tokens = {},
                    .prompt_length = result.prompt_tokens,
                    .max_new_tokens = job_.max_new_tokens[index]};
  sequence.tokens.reserve(prompt.size() + static_cast<std::size_t>(sequence.max_new_tokens));
  sequence.tokens = prompt;
  if (commit(sequence, first)) return;
  free_slots_.pop_back();
  active_.push_back(std::move(sequence));
}

// Adds an output token; true where it ends the request.
bool Run::commit(Sequence& sequence, int32_t token) {
  RequestResult& result = result_.requests[static_cast<std::size_t>(sequence.request)];
  sequence.tokens.push_back(token);
  result.tokens.push_back(token);
  if (is_stop(token)) {
    result.finish = Finish::stop;
    return true;
  }
  result.finish = Finish::length;
  return sequence.remaining() == 0;
}

void Run::draft() {
  draftables_.clear();
  for (std::size_t i = 0; i < active_.size(); ++i) {
    proposals_[i].clear();
    // The target adds a token of its own after the drafted ones.
    draftables_.push_back({.request = active_[i].request,
                           .slot = active_[i].slot,
                           .tokens = active_[i].tokens,
                           .depth = active_[i].remaining() - 1});
  }
  if (shapes_.shape().nodes == 0) return;
  parts_.drafter->propose(draftables_,
                          {.shape = shapes_.shape(),
                           .keep_logits = parts_.trace != nullptr,
                           .choice = parts_.acceptance.draft_choice()},
                          std::span(proposals_).first(active_.size()));
}

// One forward of the target over the last token and the proposal of every sequence; its row count.
int Run::verify() {
  verifiables_.clear();
  for (const Sequence& sequence : active_) {
    verifiables_.push_back({sequence.slot, sequence.tokens, sequence.cached()});
  }
  return verification_.forward(parts_.model, parts_.precision, verifiables_, proposals_, want_);
}

// Applies the acceptance rule to one sequence and commits what stays.
Outcome Run::judge(std::size_t index) {
  Sequence& sequence = active_[index];
  const Proposal& proposal = proposals_[index];
  const TargetRows target = verification_.rows(parts_.model, index);
  parts_.acceptance.decide({sequence.request, static_cast<int>(sequence.tokens.size())}, proposal,
                           target, verdict_);
  shapes_.judged(index, proposal, verdict_, draftables_[index].depth);
  const int base = sequence.cached();
  const int output_length = sequence.output_length();

  Outcome outcome;
  outcome.drafted = static_cast<int>(proposal.tokens.size());
  for (const int row : verdict_.path) {
    ++outcome.accepted;
    ++outcome.committed;
    outcome.finished = commit(sequence, proposal.tokens[static_cast<std::size_t>(row) - 1]);
    if (outcome.finished) break;
  }
  // What follows a stop token is dropped: it was neither reached nor accepted.
  const bool cut = outcome.finished;
  if (!cut) {
    ++outcome.committed;
    outcome.finished = commit(sequence, verdict_.next);
  }
  const bool refused = verdict_.refused && !cut;
  outcome.reached = outcome.accepted + (refused ? 1 : 0);

  sequence.undrafted = shapes_.shape().nodes > 0 ? 0 : sequence.undrafted + outcome.committed;
  if (!outcome.finished) {
    keep_path(parts_.model, sequence.slot, base, proposal, verdict_.path);
    inform_drafter(sequence.slot, target);
  }
  if (parts_.trace != nullptr) {
    parts_.trace->add({.request = sequence.request,
                       .round = static_cast<int>(result_.rounds.rows.size()),
                       .prompt_length = sequence.prompt_length,
                       .output_length = output_length,
                       .accepted = outcome.accepted,
                       .refused = refused,
                       .path = verdict_.path},
                      proposal, target);
  }
  return outcome;
}

void Run::inform_drafter(int slot, const TargetRows& target) {
  if (parts_.drafter == nullptr) return;
  if (!want_.taps.empty()) {
    parts_.drafter->observe(slot, target.features(0));
    for (const int row : verdict_.path) parts_.drafter->observe(slot, target.features(row));
  }
  parts_.drafter->verified(slot, verdict_.path);
}

void Run::round() {
  const double begin = mark_;
  int behind = 0;
  for (const Sequence& sequence : active_) behind += sequence.undrafted;
  shapes_.choose(static_cast<int>(active_.size()), behind);
  draft();
  const double drafted = clock_.seconds();
  const int rows = verify();
  const double verified = clock_.seconds();

  const int number = static_cast<int>(result_.rounds.rows.size());
  SequenceRoundColumns& columns = result_.sequence_rounds;
  std::vector<Outcome> outcomes;
  int committed = 0;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    const Outcome outcome = judge(i);
    columns.request.push_back(active_[i].request);
    columns.round.push_back(number);
    columns.drafted.push_back(outcome.drafted);
    columns.reached.push_back(outcome.reached);
    columns.accepted.push_back(outcome.accepted);
    columns.committed.push_back(outcome.committed);
    outcomes.push_back(outcome);
    committed += outcome.committed;
  }
  const double end = clock_.seconds();

  for (std::size_t i = 0; i < active_.size(); ++i) {
    RequestResult& result = result_.requests[static_cast<std::size_t>(active_[i].request)];
    result.round_end_s.push_back(end);
    result.round_tokens.push_back(outcomes[i].committed);
    if (outcomes[i].finished) free_slots_.push_back(active_[i].slot);
  }
  result_.rounds.start_s.push_back(begin);
  result_.rounds.draft_s.push_back(drafted - begin);
  result_.rounds.verify_s.push_back(verified - drafted);
  result_.rounds.other_s.push_back(end - verified);
  result_.rounds.rows.push_back(rows);
  result_.rounds.sequences.push_back(static_cast<int>(active_.size()));
  result_.decode_s += end - begin;
  mark_ = end;
  shapes_.ended({.sequences = static_cast<int>(active_.size()),
                 .rows = rows,
                 .draft_s = drafted - begin,
                 .verify_s = verified - drafted,
                 .other_s = end - verified},
                committed);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    if (outcomes[i].finished) continue;
    if (kept != i) active_[kept] = std::move(active_[i]);
    ++kept;
  }
  active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(kept), active_.end());
}

}  // namespace

RunResult decode(const Parts& parts, const Job& job) {
  // Before the clock of the run starts, so that no request waits for it.
  if (parts.chooser != nullptr) {
    const auto sequences = std::min(job.prompts.size(), static_cast<std::size_t>(job.batch_size));
    calibrate(*parts.chooser, parts.model, parts.precision, parts.acceptance.want(),
              static_cast<int>(sequences), job.prompts.front(), parts.prefill_cache);
  }
  return Run(parts, job).execute();
}

}  // namespace specquant::decode
