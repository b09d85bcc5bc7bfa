// Parsing of JSON that others wrote: every failure is a std::invalid_argument with one sentence.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace specquant::core {

// Deeper nesting than any message of the protocol or header of a packed file has.
constexpr int kMaxJsonDepth = 32;

// Throws std::invalid_argument where `text` is not one JSON value or nests deeper than
// kMaxJsonDepth.
nlohmann::json parse_json(std::string_view text);

}  // namespace specquant::core
