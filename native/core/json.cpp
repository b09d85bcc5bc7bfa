#include "core/json.h"

#include <stdexcept>
#include <string>

namespace specquant::core {
namespace {

// The parser has no depth limit of its own, and each level costs it memory.
bool nests_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  if (nests_too_deep(text)) {
    throw std::invalid_argument("The JSON nests deeper than " + std::to_string(kMaxJsonDepth) +
                                " levels.");
  }
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw std::invalid_argument("It is not valid JSON (at byte " + std::to_string(error.byte) +
                                ").");
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("It is not valid JSON (a number is out of range).");
  }
}

}  // namespace specquant::core
