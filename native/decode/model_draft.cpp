#include "decode/model_draft.h"

#include <algorithm>

namespace specquant::decode {
namespace {

int trunk_of(const DraftStart& start) { return start.base + static_cast<int>(start.tokens.size()); }

int depth_of(const DraftStart& start, const Drafting& drafting) {
  return std::min(start.depth, drafting.shape.depth);
}

}  // namespace

ModelDraft::ModelDraft(Model& model, Precision precision)
    : model_(model),
      precision_(precision),
      takes_features_(model.shape().feature_width > 0),
      own_tap_(model.shape().layers) {}

void ModelDraft::propose(std::span<const DraftStart> starts, const Drafting& drafting,
                         std::span<Proposal> proposals) {
  if (growths_.size() < starts.size()) growths_.resize(starts.size());
  live_.clear();
  batch_.clear();
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const DraftStart& start = starts[i];
    growths_[i].entries.clear();
    if (depth_of(start, drafting) <= 0) continue;
    live_.push_back(i);
    batch_.push_back({.slot = start.slot,
                      .base = start.base,
                      .tokens = start.tokens,
                      .features = start.features});
    proposals[i].vocabulary = model_.draft_tokens();
  }
  if (live_.empty()) return;
  forward(drafting, LogitRows::last);
  if (drafting.shape.is_chain()) {
    grow_chains(starts, drafting, proposals);
    return;
  }
  grow_trees(starts, drafting);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (depth_of(starts[i], drafting) > 0) finish_tree(growths_[i], drafting, proposals[i]);
  }
}

void ModelDraft::forward(const Drafting& drafting, LogitRows rows) {
  const bool chain = drafting.shape.is_chain();
  Want want{.rows = rows,
            .top_k = drafting.shape.top_k,
            .log_sum = !chain,
            .logits = drafting.keep_logits || (chain && drafting.choice.draws())};
  if (takes_features_) want.taps = std::span(&own_tap_, 1);
  model_.forward(precision_, batch_, want);
}

void ModelDraft::grow_chains(std::span<const DraftStart> starts, const Drafting& drafting,
                             std::span<Proposal> proposals) {
  const bool draws = drafting.choice.draws();
  for (int step = 0;; ++step) {
    std::size_t end_row = 0;  // behind a sequence's rows
    std::size_t growing = 0;
    for (std::size_t row = 0; row < live_.size(); ++row) {
      const std::size_t i = live_[row];
      Proposal& proposal = proposals[i];
      end_row += batch_[row].tokens.size();
      const Place place{starts[i].next.request, starts[i].next.position + step};
      const DraftRow said{.top = model_.top(row),
                          .logits = draws ? model_.logits(row) : std::span<const float>(),
                          .vocabulary = proposal.vocabulary};
      proposal.add(drafting.choice.choose(place, said), step);
      proposal.drawn = draws;
      if (draws || drafting.keep_logits) proposal.set_logits(step, model_.logits(row));

      Growth& growth = growths_[i];
      if (step + 1 == depth_of(starts[i], drafting)) {
        growth.entries.push_back(-1);
        continue;
      }
      growth.entries.push_back(step);
      growth.tokens.assign(1, proposal.tokens.back());
      growth.features.clear();
      if (takes_features_) {
        const auto own = model_.features(end_row - 1);
        growth.features.assign(own.begin(), own.end());
      }
      live_[growing++] = i;
    }
    live_.resize(growing);
    if (live_.empty()) return;
    batch_.clear();
    for (const std::size_t i : live_) {
      batch_.push_back({.slot = starts[i].slot,
                        .base = trunk_of(starts[i]) + step,
                        .tokens = growths_[i].tokens,
                        .features = growths_[i].features});
    }
    forward(drafting, LogitRows::last);
  }
}

void ModelDraft::grow_trees(std::span<const DraftStart> starts, const Drafting& drafting) {
  for (const std::size_t i : live_) {
    Growth& growth = growths_[i];
    growth.tree.start(drafting.shape, depth_of(starts[i], drafting));
    growth.level.assign(1, kTreeRoot);
    growth.entry_of_node.clear();
    growth.words.clear();
  }
  while (true) {
    std::size_t logit_row = 0;
    std::size_t end_row = 0;
    std::size_t growing = 0;
    for (std::size_t p = 0; p < live_.size(); ++p) {
      Growth& growth = growths_[live_[p]];
      end_row += batch_[p].tokens.size();
      take_level(growth, drafting.keep_logits, logit_row);
      logit_row += growth.level.size();
      const std::span<const int> next = growth.tree.next_level();
      if (next.empty()) continue;
      add_level(growth, next, end_row - growth.level.size());
      growth.level.assign(next.begin(), next.end());
      live_[growing++] = live_[p];
    }
    live_.resize(growing);
    if (live_.empty()) return;
    batch_.clear();
    for (const std::size_t i : live_) {
      const Growth& growth = growths_[i];
      const int trunk = trunk_of(starts[i]);
      const auto before = static_cast<int>(growth.words.size() - growth.tokens.size());
      batch_.push_back({.slot = starts[i].slot,
                        .base = trunk + before,
                        .tokens = growth.tokens,
                        .ancestors = growth.ancestors,
                        .trunk = trunk,
                        .features = growth.features});
    }
    forward(drafting, LogitRows::all);
  }
}

// Takes the children of the level that the last forward computed.
void ModelDraft::take_level(Growth& growth, bool keep_logits, std::size_t first_row) {
  for (std::size_t k = 0; k < growth.level.size(); ++k) {
    const int node = growth.level[k];
    growth.tree.expand(node, model_.top(first_row + k), model_.log_sum(first_row + k));
    if (!keep_logits) continue;
    const std::size_t place =
        node == kTreeRoot
            ? 0
            : static_cast<std::size_t>(growth.entry_of_node[static_cast<std::size_t>(node)]) + 1;
    if (growth.logits.size() <= place) growth.logits.resize(place + 1);
    const auto logits = model_.logits(first_row + k);
    growth.logits[place].assign(logits.begin(), logits.end());
  }
}

// Makes the rows of the next forward. Row first_feature + k of the last one was level[k].
void ModelDraft::add_level(Growth& growth, std::span<const int> nodes, std::size_t first_feature) {
  growth.tokens.clear();
  growth.ancestors.clear();
  growth.features.clear();
  growth.entry_of_node.resize(static_cast<std::size_t>(growth.tree.size()), -1);
  for (const int node : nodes) {
    const int parent = growth.tree.parent(node);
    uint64_t word = uint64_t{1} << growth.words.size();
    if (parent != kTreeRoot) {
      const int entry = growth.entry_of_node[static_cast<std::size_t>(parent)];
      word |= growth.words[static_cast<std::size_t>(entry)];
    }
    growth.entry_of_node[static_cast<std::size_t>(node)] = static_cast<int>(growth.words.size());
    growth.words.push_back(word);
    growth.tokens.push_back(growth.tree.token(node));
    growth.ancestors.push_back(word);
    if (!takes_features_) continue;
    const auto place = std::ranges::find(growth.level, parent) - growth.level.begin();
    const auto own = model_.features(first_feature + static_cast<std::size_t>(place));
    growth.features.insert(growth.features.end(), own.begin(), own.end());
  }
}

void ModelDraft::finish_tree(Growth& growth, const Drafting& drafting, Proposal& proposal) {
  growth.tree.add_to(proposal);
  if (drafting.keep_logits) proposal.set_logits(0, growth.logits[0]);
  growth.entry_of_node.resize(static_cast<std::size_t>(growth.tree.size()), -1);
  for (const int node : growth.tree.kept()) {
    const int entry = growth.entry_of_node[static_cast<std::size_t>(node)];
    growth.entries.push_back(entry);
    if (drafting.keep_logits && entry >= 0) {
      proposal.set_logits(static_cast<int>(growth.entries.size()),
                          growth.logits[static_cast<std::size_t>(entry) + 1]);
    }
  }
}

}  // namespace specquant::decode
