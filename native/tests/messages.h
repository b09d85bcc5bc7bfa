// What the message of an error must say.
#pragma once

#include <doctest/doctest.h>

#include <string>

namespace specquant::test {

inline void check_says(const std::string& message, const std::string& part) {
  INFO(message);
  CHECK(message.find(part) != std::string::npos);
}

}  // namespace specquant::test
