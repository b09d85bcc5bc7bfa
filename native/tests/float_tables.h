// The kernels of the floating-point parts, for every instruction set that this processor has.
#pragma once

#include <utility>
#include <vector>

#include "cpu/elementwise.h"
#include "cpu/kernels.h"

namespace specquant::cpu::reference {

inline std::vector<std::pair<const char*, const FloatKernels*>> float_tables() {
  std::vector<std::pair<const char*, const FloatKernels*>> found;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    if (kernels(isa) != nullptr) found.emplace_back(isa, &float_kernels(isa));
  }
  return found;
}

}  // namespace specquant::cpu::reference
