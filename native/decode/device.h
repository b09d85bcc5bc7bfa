// What the decode loop asks of a device: a forward pass, and care of the KV cache.
// Everything about drafting, acceptance and scheduling lives above this line, everything about
// kernels and memory below it, so that CPU and CUDA share one decode code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace specquant {

// What is computed. The head and embedding keep their stored width in the 4-bit precisions. The
// variants of w4a4 have activation groups of 16 instead of 32 (g16), or the inputs of some matrices
// at 8 bits: those of q, k and v (qkv8) or of o and down (od8).
enum class Precision {
  fp16,
  bf16,
  w8a8,
  w4a16,
  w4a8,
  w4a4,
  w4a4_g16,
  w4a4_qkv8,
  w4a4_od8,
  w4a4_g16_qkv8,
  w4a4_g16_od8
};

// One sequence's part of a forward: tokens that follow `base` cached ones.
//
// Row i writes its key and value at cache index base + i. Without `ancestors` the rows are a chain
// of any length. With it (at most 64 rows), bit j of ancestors[i] says that row i sees row j; bit i
// is set, parents come before children, and ancestors[i] without bit i is the ancestor word of i's
// parent (or 0). A row's position, for rotary embedding and for the order of its sums, is
// base + popcount(ancestors[i]) - 1: equal to what it would have if its root path were decoded
// alone.
//
// A tree may grow in the cache over several forwards. `trunk` is then the number of cached entries
// that all rows see (at most `base`): bit j of a word stands for cache index trunk + j, row i is
// bit base - trunk + i, its position is trunk + popcount(ancestors[i]) - 1, and
// base - trunk + rows is at most 64. Words of earlier forwards are the caller's to remember: the
// device checks what it can see and no more.
//
// `features` are for a model whose shape has a feature width (a draft head): [row][width], f32,
// where width is `feature_width` for the target's features and `hidden` for the head's own; the
// size of the span tells which. Empty for every other model.
struct Rows {
  int slot = 0;
  int base = 0;
  std::span<const int32_t> tokens = {};
  std::span<const uint64_t> ancestors = {};
  int trunk = -1;  // -1: base
  std::span<const float> features = {};
};

// The cached entries that all rows see.
inline int trunk_of(const Rows& rows) { return rows.trunk == -1 ? rows.base : rows.trunk; }

enum class LogitRows { none, last, all };

// What a forward leaves behind for the caller to read, for each logit row.
struct Want {
  LogitRows rows = LogitRows::last;
  int top_k = 1;         // token ids and logits, in falling order; ties go to the lower id
  bool log_sum = false;  // log of the sum of exponentials, to turn a logit into a log-probability
  bool logits = false;   // the whole row, f32, on the host
  // Parts of features(), in this order, of every row, whether or not it has logits. Tap t is the
  // residual stream in front of layer t; t = layers stands for behind the last one, and
  // t = layers + 1 for the final norm's output.
  std::span<const int> taps = {};
};

struct TopEntry {
  int32_t token = 0;
  float logit = 0.0F;
};

struct ModelShape {
  int hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int vocabulary = 0, max_position = 0;
  float rope_theta = 10000.0F, norm_epsilon = 1e-5F;
  bool tied_head = false;
  int feature_width = 0;  // of the target's features that a draft head takes; 0: takes none
};

struct MemoryUse {
  std::map<std::string, int64_t> weight_bytes;  // by kind of tensor
  int64_t kv_bytes = 0;
};

// How a precision is computed here: evidence for the record.
struct Proof {
  std::vector<std::string> kernels;
  int64_t bytes_per_token = 0;  // weight bytes that a forward of one row reads
  std::string compute_dtype;    // of activations and sums, in words
};

// How compute_dtype names integer inputs.
inline constexpr const char* kEightBitInputs = "8-bit integers with an f32 scale a group of 32";
inline constexpr const char* kFourBitInputs =
    "4-bit codes with an f32 scale and a zero point a group of 32";

// A loaded model with a KV cache of `max_batch` slots. Calls return when their results are
// readable.
//
// Shape invariance: the results of a row are bitwise the same for any number of rows and sequences
// computed with it. A device that cannot promise this does not implement the interface.
class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  virtual const ModelShape& shape() const = 0;
  virtual MemoryUse memory() const = 0;
  virtual Proof proof(Precision precision) const = 0;

  // Rows of several sequences, each slot at most once. Throws std::invalid_argument on a bad
  // request, before anything is written.
  virtual void forward(Precision precision, std::span<const Rows> batch, const Want& want) = 0;

  // Results of the last forward. Logit rows are numbered in the order of the batch.
  virtual std::span<const TopEntry> top(std::size_t logit_row) const = 0;
  virtual float log_sum(std::size_t logit_row) const = 0;
  virtual std::span<const float> logits(std::size_t logit_row) const = 0;
  // The taps that were wanted, one after another; rows are numbered in the order of the batch,
  // those without logits included.
  virtual std::span<const float> features(std::size_t) const { return {}; }

  // For a drafter with a reduced vocabulary: the token of each entry of logits(), rising. top()
  // already speaks of tokens. Empty where entry i is token i.
  virtual std::span<const int32_t> draft_tokens() const { return {}; }

  // Moves cache entries base + path[i] to base + i (path rising). Rolling back needs no call: the
  // caller passes a smaller base next time and stale entries are overwritten.
  virtual void compact(int slot, int base, std::span<const int> path) = 0;

  // A copy of the first `length` entries of a slot, and its return into any slot.
  virtual std::shared_ptr<const void> save(int slot, int length) const = 0;
  virtual void restore(int slot, const std::shared_ptr<const void>& saved) = 0;
};

// Checks the rules above; throws std::invalid_argument that names the row.
void validate(std::span<const Rows> batch, int max_batch, int max_context, int vocabulary);

// Checks Rows::features against the widths that the model takes; throws as validate() does.
void validate_features(std::span<const Rows> batch, const ModelShape& shape);

// Checks Want::taps; throws std::invalid_argument.
void validate_taps(std::span<const int> taps, int layers);

Precision parse_precision(const std::string& name);  // throws std::invalid_argument with near names
const char* name_of(Precision precision);

}  // namespace specquant
