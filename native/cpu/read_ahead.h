// Memory that a thread reads in a later stage, asked for while the present one leaves memory idle.
#pragma once

#include <cstddef>

namespace specquant::cpu {

// A stretch that is brought to the second-level cache a few lines at a time. Always inlined, as
// code of every instruction set uses it.
struct ReadAhead {
  const std::byte* next = nullptr;
  const std::byte* end = nullptr;

  [[gnu::always_inline]] void ask(int lines) {
    for (; lines > 0 && next < end; --lines, next += 64) __builtin_prefetch(next, 0, 2);
  }
};

}  // namespace specquant::cpu
