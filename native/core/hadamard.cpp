#include "core/hadamard.h"

#include <bit>
#include <cstddef>

namespace specquant::core {
namespace {

bool is_prime(int number) {
  if (number < 2) return false;
  for (int divisor = 2; divisor * divisor <= number; ++divisor) {
    if (number % divisor == 0) return false;
  }
  return true;
}

// χ of every residue: 0 for 0, 1 for a nonzero square, −1 otherwise.
std::vector<int8_t> quadratic_characters(int prime) {
  std::vector<int8_t> characters(static_cast<std::size_t>(prime), -1);
  characters[0] = 0;
  for (int64_t i = 1; i < prime; ++i) characters[static_cast<std::size_t>(i * i % prime)] = 1;
  return characters;
}

// Paley's core, bordered: `below` stands down the first column, 1 along the first row, 0 at the
// corner, and χ(i − j) elsewhere. [prime + 1][prime + 1].
std::vector<int8_t> bordered_core(int prime, int8_t below) {
  const std::vector<int8_t> characters = quadratic_characters(prime);
  const int size = prime + 1;
  std::vector<int8_t> core(static_cast<std::size_t>(size) * size);
  for (int i = 0; i < size; ++i) {
    for (int j = 0; j < size; ++j) {
      int8_t& entry = core[static_cast<std::size_t>(i) * size + j];
      if (i == 0) {
        entry = j == 0 ? 0 : 1;
      } else {
        entry = j == 0 ? below : characters[static_cast<std::size_t>((i - j + prime) % prime)];
      }
    }
  }
  return core;
}

// Paley 1933, J. Math. Phys. 12: I + S over a prime that leaves 3 modulo 4.
std::vector<int8_t> first_construction(int order) {
  std::vector<int8_t> signs = bordered_core(order - 1, -1);
  for (int i = 0; i < order; ++i) signs[static_cast<std::size_t>(i) * order + i] = 1;
  return signs;
}

// C ⊗ [[1, 1], [1, −1]] + I ⊗ [[1, −1], [−1, −1]] over a prime that leaves 1 modulo 4.
std::vector<int8_t> second_construction(int order) {
  const int half = order / 2;
  const std::vector<int8_t> core = bordered_core(half - 1, 1);
  std::vector<int8_t> signs(static_cast<std::size_t>(order) * order);
  for (int i = 0; i < order; ++i) {
    for (int j = 0; j < order; ++j) {
      const int both = i % 2 * (j % 2);
      const int sign = i / 2 == j / 2 ? (i % 2 + j % 2 == 0 ? 1 : -1)
                                      : core[static_cast<std::size_t>(i / 2) * half + j / 2] *
                                            (both == 1 ? -1 : 1);
      signs[static_cast<std::size_t>(i) * order + j] = static_cast<int8_t>(sign);
    }
  }
  return signs;
}

}  // namespace

std::optional<Hadamard> hadamard_of(int width) {
  if (width < 1) return std::nullopt;
  const int power = 1 << std::countr_zero(static_cast<unsigned>(width));
  const int odd = width / power;
  if (odd == 1) return Hadamard{1, power, {1}};
  if (power < 4 || odd > (1 << 20)) return std::nullopt;
  const int order = 4 * odd;
  if (is_prime(order - 1)) return Hadamard{order, power / 4, first_construction(order)};
  if (is_prime(order / 2 - 1) && (order / 2 - 1) % 4 == 1) {
    return Hadamard{order, power / 4, second_construction(order)};
  }
  return std::nullopt;
}

}  // namespace specquant::core
