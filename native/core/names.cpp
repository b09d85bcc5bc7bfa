#include "core/names.h"

#include <algorithm>
#include <numeric>

namespace specquant::core {
namespace {

constexpr std::size_t kLongestQuote = 60;

// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::string quoted(std::string_view name) {
  if (name.size() <= kLongestQuote) return "'" + std::string(name) + "'";
  return "'" + std::string(name.substr(0, kLongestQuote)) + "...'";
}

std::string list_of(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + quoted(name);
  return text;
}

std::string suggestion(std::string_view name, std::span<const std::string> known) {
  std::string text;
  if (name.size() <= kLongestQuote && !known.empty()) {
    const auto nearest = std::ranges::min_element(
        known, {}, [&](const std::string& candidate) { return edit_distance(name, candidate); });
    if (edit_distance(name, *nearest) <= std::max<std::size_t>(2, nearest->size() / 3) &&
        edit_distance(name, *nearest) < nearest->size()) {
      text = "Did you mean " + quoted(*nearest) + "? ";
    }
  }
  return text + "Known: " + list_of(known) + ".";
}

}  // namespace specquant::core
