// What the system says about memory, in bytes.
#pragma once

#include <cstdint>
#include <string>

namespace specquant::core {

int64_t peak_memory();  // of this process so far
int64_t
available_memory();  // that a new allocation may use without swapping, limits of groups included

std::string gigabytes(double bytes);  // for a message: "1.500 GB"

}  // namespace specquant::core
