// SHA-256 (FIPS 180-4), to name the binary that measured.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace specquant::core {

std::string sha256_hex(std::span<const std::byte> bytes);

// Hash of the running program's file. Throws std::runtime_error where it cannot be read.
std::string own_binary_sha256();

}  // namespace specquant::core
