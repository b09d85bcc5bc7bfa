// Drafting a chain or a tree with a model: what the drafters that own or borrow one have in common.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/device.h"
#include "decode/draft_tree.h"
#include "decode/drafter.h"

namespace specquant::decode {

// Where one sequence's draft begins.
struct DraftStart {
  Place next;  // of the first drafted token
  int slot = 0;
  int base = 0;                          // entries of the model's cache that stand
  std::span<const int32_t> tokens;       // to be cached after them; the draft follows the last
  std::span<const float> features = {};  // of a head: the target's, one row a token
  int depth = 0;                         // longest path; 0: nothing is computed
};

class ModelDraft {
 public:
  ModelDraft(Model& model, Precision precision);

  // Fills one cleared proposal a start, with a forward for the starts' tokens and one for each
  // further level. Behind its tokens, a start's cache holds the rows that entries() tells.
  void propose(std::span<const DraftStart> starts, const Drafting& drafting,
               std::span<Proposal> proposals);

  // Of the last proposal of a start: for each token the cache entry that holds it, counted from the
  // end of the start's tokens; -1 where the draft ended with the token.
  std::span<const int> entries(std::size_t start) const { return growths_[start].entries; }

 private:
  // A sequence's draft while it grows.
  struct Growth {
    std::vector<int> entries;
    std::vector<int32_t> tokens;  // of the next forward, with what it needs
    std::vector<uint64_t> ancestors;
    std::vector<float> features;
    // Of a tree only.
    DraftTree tree;
    std::vector<int> level;                  // nodes whose children the last forward gives
    std::vector<int> entry_of_node;          // -1: not computed
    std::vector<uint64_t> words;             // ancestors by entry
    std::vector<std::vector<float>> logits;  // after the root, then by entry
  };

  Model& model_;
  Precision precision_;
  bool takes_features_;
  int own_tap_;                    // a head's own feature
  std::vector<Growth> growths_;    // by start
  std::vector<std::size_t> live_;  // starts that grow on, in the order of the last forward's batch
  std::vector<Rows> batch_;

  void forward(const Drafting& drafting, LogitRows rows);
  void grow_chains(std::span<const DraftStart> starts, const Drafting& drafting,
                   std::span<Proposal> proposals);
  void grow_trees(std::span<const DraftStart> starts, const Drafting& drafting);
  void take_level(Growth& growth, bool keep_logits, std::size_t first_row);
  void add_level(Growth& growth, std::span<const int> nodes, std::size_t first_feature);
  void finish_tree(Growth& growth, const Drafting& drafting, Proposal& proposal);
};

}  // namespace specquant::decode
