// What the system says about memory, in bytes.
#pragma once

#include <cstdint>

namespace specquant::core {

int64_t peak_memory();  // of this process so far
int64_t
available_memory();  // that a new allocation may use without swapping, limits of groups included

}  // namespace specquant::core
