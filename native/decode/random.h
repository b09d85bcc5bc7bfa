// Random numbers that depend on their place alone: on a seed, a request, a position and a purpose.
// So no outcome depends on the batch, on the order of prompts' rounds, or on what was drafted
// before.
#pragma once

#include <cstdint>

#include "decode/place.h"

namespace specquant::decode {

enum class Purpose : uint64_t {
  draft,   // the drafter's token
  accept,  // whether the drafter's token stays
  token,   // the target's token, in place of a refused one or after the accepted ones
  length,  // a replayed number of accepted tokens
};

// A bijection whose outputs look independent for any inputs: the finalizer of SplitMix64
// (Steele, Lea, Flood, OOPSLA 2014).
inline uint64_t scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Uniform in [0, 1), in steps of 2^-53. Written out here, since the distributions of the standard
// library differ between its implementations.
inline double uniform(uint64_t seed, Place place, Purpose purpose) {
  uint64_t bits = scramble(seed);
  bits = scramble(bits ^ static_cast<uint32_t>(place.request));
  bits = scramble(bits ^ static_cast<uint32_t>(place.position));
  bits = scramble(bits ^ static_cast<uint64_t>(purpose));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace specquant::decode
