// Memory that a thread reads in a later stage, asked for while the present one leaves memory idle.
#pragma once

#include <cstddef>

namespace specquant::cpu {

// A stretch that is brought to the second-level cache a few lines at a time.
struct ReadAhead {
  const std::byte* next = nullptr;
  const std::byte* end = nullptr;

  void ask(int lines) {
    for (; lines > 0 && next < end; --lines, next += 64) __builtin_prefetch(next, 0, 2);
  }
};

}  // namespace specquant::cpu
