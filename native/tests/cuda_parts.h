// Whether there is a GPU for the tests of the CUDA engine.
#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "core/errors.h"
#include "cuda/model.h"

namespace specquant::test {

// Why there is no GPU, or nothing.
inline const std::optional<std::string>& missing_gpu() {
  static const std::optional<std::string> reason = []() -> std::optional<std::string> {
    try {
      cuda::describe_device();
      return std::nullopt;
    } catch (const core::Error& error) {
      return error.what();
    }
  }();
  return reason;
}

#define NEEDS_GPU()                                        \
  if (specquant::test::missing_gpu()) {                    \
    MESSAGE("skipped: ", *specquant::test::missing_gpu()); \
    return;                                                \
  }

}  // namespace specquant::test
