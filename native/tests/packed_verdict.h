// What the reader of packed files says of spoilt parts.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "core/packed_file.h"
#include "tests/packed_parts.h"

namespace specquant::test {

// What the reader says of these bytes: "" where it takes them.
inline std::string verdict(const std::string& bytes) {
  const AlignedBytes aligned(bytes);
  try {
    const core::PackedFile file(aligned.view(), "tiny.packed");
    return "";
  } catch (const core::Error& error) {
    CHECK(error.type() == core::ErrorType::model);
    const std::string message = error.what();
    CHECK(message.find("tiny.packed") != std::string::npos);
    return message;
  }
}

inline std::string verdict_after(const std::function<void(PackedParts&)>& spoil) {
  PackedParts builder;
  spoil(builder);
  return verdict(builder.bytes());
}

}  // namespace specquant::test
