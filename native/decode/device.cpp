#include "decode/device.h"

#include <array>
#include <bit>
#include <set>
#include <stdexcept>

#include "core/names.h"

namespace specquant {
namespace {

struct NamedPrecision {
  Precision precision;
  const char* name;
};

constexpr std::array kPrecisions{NamedPrecision{Precision::fp16, "fp16"},
                                 NamedPrecision{Precision::bf16, "bf16"},
                                 NamedPrecision{Precision::w8a8, "w8a8"},
                                 NamedPrecision{Precision::w4a16, "w4a16"},
                                 NamedPrecision{Precision::w4a8, "w4a8"},
                                 NamedPrecision{Precision::w4a4, "w4a4"},
                                 NamedPrecision{Precision::w4a4_g16, "w4a4_g16"},
                                 NamedPrecision{Precision::w4a4_qkv8, "w4a4_qkv8"},
                                 NamedPrecision{Precision::w4a4_od8, "w4a4_od8"},
                                 NamedPrecision{Precision::w4a4_g16_qkv8, "w4a4_g16_qkv8"},
                                 NamedPrecision{Precision::w4a4_g16_od8, "w4a4_g16_od8"}};

constexpr std::size_t kMaskedRows = 64;

[[noreturn]] void refuse(std::size_t sequence, std::size_t row, const std::string& what) {
  throw std::invalid_argument("Sequence " + std::to_string(sequence) + ", row " +
                              std::to_string(row) + ": " + what + ".");
}

void validate_ancestors(std::size_t sequence, const Rows& rows) {
  const auto& ancestors = rows.ancestors;
  const int trunk = trunk_of(rows);
  if (trunk < 0 || trunk > rows.base) {
    refuse(sequence, 0, "the trunk is not between 0 and the base");
  }
  const auto grown = static_cast<std::size_t>(rows.base - trunk);  // nodes of earlier forwards
  if (ancestors.size() != rows.tokens.size() || grown > kMaskedRows - ancestors.size()) {
    refuse(sequence, 0,
           "a masked sequence has one ancestor word a row, and at most 64 rows, those of earlier "
           "forwards behind its trunk included");
  }
  // The words of the nodes so far; those of earlier forwards are known from their descendants.
  std::array<uint64_t, kMaskedRows> words{};
  for (std::size_t i = 0; i < ancestors.size(); ++i) {
    const uint64_t own = uint64_t{1} << (grown + i);
    if ((ancestors[i] & own) == 0) refuse(sequence, i, "it does not see itself");
    if (ancestors[i] > own + (own - 1)) refuse(sequence, i, "it sees a later row");
    uint64_t rest = ancestors[i];
    while (rest != 0) {
      const auto node = static_cast<std::size_t>(std::bit_width(rest)) - 1;
      if (words[node] != 0 && words[node] != rest) {
        refuse(sequence, i, "its ancestors are not those of its parent: the mask is not a tree");
      }
      words[node] = rest;
      rest ^= uint64_t{1} << node;
    }
  }
}

}  // namespace

void validate(std::span<const Rows> batch, int max_batch, int max_context, int vocabulary) {
  if (batch.empty()) throw std::invalid_argument("The batch has no sequence.");
  std::set<int> slots;
  for (std::size_t sequence = 0; sequence < batch.size(); ++sequence) {
    const Rows& rows = batch[sequence];
    if (rows.slot < 0 || rows.slot >= max_batch) refuse(sequence, 0, "the slot is out of range");
    if (!slots.insert(rows.slot).second) refuse(sequence, 0, "the slot occurs twice");
    if (rows.tokens.empty()) refuse(sequence, 0, "there are no tokens");
    if (rows.base < 0) refuse(sequence, 0, "the position is negative");
    if (rows.tokens.size() > static_cast<std::size_t>(max_context) ||
        rows.base > max_context - static_cast<int>(rows.tokens.size())) {
      refuse(sequence, rows.tokens.size() - 1, "the position is beyond the cache");
    }
    for (std::size_t i = 0; i < rows.tokens.size(); ++i) {
      if (rows.tokens[i] < 0 || rows.tokens[i] >= vocabulary) {
        refuse(sequence, i, "the token is not in the vocabulary");
      }
    }
    if (!rows.ancestors.empty()) {
      validate_ancestors(sequence, rows);
    } else if (rows.trunk != -1) {
      refuse(sequence, 0, "a trunk is given without ancestors");
    }
  }
}

void validate_features(std::span<const Rows> batch, const ModelShape& shape) {
  for (std::size_t sequence = 0; sequence < batch.size(); ++sequence) {
    const Rows& rows = batch[sequence];
    if (shape.feature_width == 0) {
      if (!rows.features.empty()) refuse(sequence, 0, "the model takes no features");
      continue;
    }
    const std::size_t count = rows.tokens.size();
    if (rows.features.size() != count * static_cast<std::size_t>(shape.feature_width) &&
        rows.features.size() != count * static_cast<std::size_t>(shape.hidden)) {
      refuse(sequence, 0,
             "a draft head needs a feature a row, of " + std::to_string(shape.feature_width) +
                 " values from the target or " + std::to_string(shape.hidden) + " of its own");
    }
  }
}

void validate_taps(std::span<const int> taps, int layers) {
  for (const int tap : taps) {
    if (tap < 0 || tap > layers + 1) {
      throw std::invalid_argument("Tap " + std::to_string(tap) + " is not between 0 and " +
                                  std::to_string(layers + 1) + ", the final norm's output.");
    }
  }
}

Precision parse_precision(const std::string& name) {
  std::vector<std::string> names;
  for (const NamedPrecision& known : kPrecisions) {
    if (name == known.name) return known.precision;
    names.emplace_back(known.name);
  }
  throw std::invalid_argument("Unknown precision " + core::quoted(name) + ". " +
                              core::suggestion(name, names));
}

const char* name_of(Precision precision) {
  for (const NamedPrecision& known : kPrecisions) {
    if (precision == known.precision) return known.name;
  }
  return "unknown";
}

}  // namespace specquant
