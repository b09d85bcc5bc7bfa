// Orthonormal Hadamard transforms, as docs/quantize.md defines them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace specquant::core {

// y = H·x with H = (H_m ⊗ H_2^k) / √(m·2^k): Paley's matrix of order m = `order`, by rows of signs,
// and Sylvester's of order 2^k = `power`.
struct Hadamard {
  int order = 1, power = 1;
  std::vector<int8_t> signs;  // [order][order]
  int width() const { return order * power; }
};

// None where no matrix is known for the width: it must be a power of two, or a power of two times
// an odd number whose fourfold is an order of Paley's constructions over a prime field.
std::optional<Hadamard> hadamard_of(int width);

}  // namespace specquant::core
