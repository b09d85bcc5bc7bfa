// Names in error messages: what a user may have meant.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace specquant::core {

// 'name', cut where it is long.
std::string quoted(std::string_view name);

// "'a', 'b', 'c'"
std::string list_of(std::span<const std::string> names);

// "Did you mean 'w4a16'? Known: 'fp16', 'w4a16'." The question only where a name is near.
std::string suggestion(std::string_view name, std::span<const std::string> known);

}  // namespace specquant::core
