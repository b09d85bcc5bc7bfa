// simd.h in plain C++: the reference that the vector versions equal bit for bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/half.h"

#define SPECQUANT_INLINE inline

namespace specquant::cpu::scalar {

struct Vec16f {
  float v[16];

  static Vec16f zero() { return broadcast(0.0F); }
  static Vec16f broadcast(float x) {
    Vec16f r;
    for (float& lane : r.v) lane = x;
    return r;
  }
  static Vec16f load(const float* p) {
    Vec16f r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  static Vec16f load_f16(const void* p) {
    uint16_t raw[16];
    std::memcpy(raw, p, sizeof raw);
    Vec16f r;
    for (int i = 0; i < 16; ++i) r.v[i] = float_from_f16(raw[i]);
    return r;
  }
  static Vec16f load_bf16(const void* p) {
    uint16_t raw[16];
    std::memcpy(raw, p, sizeof raw);
    Vec16f r;
    for (int i = 0; i < 16; ++i) r.v[i] = float_from_bf16(raw[i]);
    return r;
  }
  void store(float* p) const { std::memcpy(p, v, sizeof v); }
  void store_f16(void* p) const {
    uint16_t raw[16];
    for (int i = 0; i < 16; ++i) raw[i] = f16_from_float(v[i]);
    std::memcpy(p, raw, sizeof raw);
  }
};

template <class Function>
inline Vec16f each(Vec16f a, Vec16f b, Function function) {
  Vec16f r;
  for (int i = 0; i < 16; ++i) r.v[i] = function(a.v[i], b.v[i]);
  return r;
}
inline Vec16f operator+(Vec16f a, Vec16f b) {
  return each(a, b, [](float x, float y) { return x + y; });
}
inline Vec16f operator-(Vec16f a, Vec16f b) {
  return each(a, b, [](float x, float y) { return x - y; });
}
inline Vec16f operator*(Vec16f a, Vec16f b) {
  return each(a, b, [](float x, float y) { return x * y; });
}
inline Vec16f operator/(Vec16f a, Vec16f b) {
  return each(a, b, [](float x, float y) { return x / y; });
}
inline Vec16f fma(Vec16f a, Vec16f b, Vec16f c) {
  Vec16f r;
  for (int i = 0; i < 16; ++i) r.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
  return r;
}
inline Vec16f min(Vec16f a, Vec16f b) {
  return each(a, b, [](float x, float y) { return x < y ? x : y; });
}
inline Vec16f max(Vec16f a, Vec16f b) {
  return each(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline Vec16f abs(Vec16f a) {
  return each(a, a, [](float x, float) { return std::fabs(x); });
}
inline Vec16f sqrt(Vec16f a) {
  return each(a, a, [](float x, float) { return std::sqrt(x); });
}

// The tree over lanes: i with i+8, i+4, i+2, i+1.
template <class Function>
inline float tree(Vec16f a, Function function) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = function(a.v[i], a.v[i + half]);
  }
  return a.v[0];
}
inline float sum(Vec16f a) {
  return tree(a, [](float x, float y) { return x + y; });
}
inline float maximum(Vec16f a) {
  return tree(a, [](float x, float y) { return x > y ? x : y; });
}
inline float minimum(Vec16f a) {
  return tree(a, [](float x, float y) { return x < y ? x : y; });
}

struct Vec16i {
  int32_t v[16];

  static Vec16i zero() { return broadcast(0); }
  static Vec16i broadcast(int32_t x) {
    Vec16i r;
    for (int32_t& lane : r.v) lane = x;
    return r;
  }
  static Vec16i load(const int32_t* p) {
    Vec16i r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  void store(int32_t* p) const { std::memcpy(p, v, sizeof v); }
};

// Lanes wrap around, as in vector registers.
template <class Function>
inline Vec16i each(Vec16i a, Vec16i b, Function function) {
  Vec16i r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = static_cast<int32_t>(
        function(static_cast<uint32_t>(a.v[i]), static_cast<uint32_t>(b.v[i])));
  }
  return r;
}
inline Vec16i operator+(Vec16i a, Vec16i b) {
  return each(a, b, [](uint32_t x, uint32_t y) { return x + y; });
}
inline Vec16i operator-(Vec16i a, Vec16i b) {
  return each(a, b, [](uint32_t x, uint32_t y) { return x - y; });
}
inline Vec16i operator&(Vec16i a, Vec16i b) {
  return each(a, b, [](uint32_t x, uint32_t y) { return x & y; });
}
inline Vec16i operator|(Vec16i a, Vec16i b) {
  return each(a, b, [](uint32_t x, uint32_t y) { return x | y; });
}
template <int n>
inline Vec16i shift_left(Vec16i a) {
  return each(a, a, [](uint32_t x, uint32_t) { return x << n; });
}
template <int n>
inline Vec16i shift_right(Vec16i a) {
  return each(a, a, [](uint32_t x, uint32_t) { return x >> n; });
}
inline Vec16i max(Vec16i a, Vec16i b) {
  Vec16i r;
  for (int i = 0; i < 16; ++i) r.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return r;
}
inline int32_t maximum(Vec16i a) {
  int32_t greatest = a.v[0];
  for (int32_t lane : a.v) greatest = lane > greatest ? lane : greatest;
  return greatest;
}
inline int32_t sum(Vec16i a) {
  uint32_t total = 0;
  for (int32_t lane : a.v) total += static_cast<uint32_t>(lane);
  return static_cast<int32_t>(total);
}
inline Vec16f to_float(Vec16i a) {
  Vec16f r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(a.v[i]);
  return r;
}
inline Vec16i to_int(Vec16f a) {
  Vec16i r;
  for (int i = 0; i < 16; ++i) {
    // Out of range and NaN give the smallest integer, as the vector instructions do.
    const bool fits = a.v[i] >= -2147483648.0F && a.v[i] < 2147483648.0F;
    r.v[i] = fits ? static_cast<int32_t>(std::nearbyintf(a.v[i])) : INT32_MIN;
  }
  return r;
}
inline Vec16i float_bits(Vec16f a) { return std::bit_cast<Vec16i>(a); }
inline Vec16f bits_float(Vec16i a) { return std::bit_cast<Vec16f>(a); }
// The low byte or the low half of each lane.
inline void store_bytes(Vec16i a, void* p) {
  uint8_t raw[16];
  for (int i = 0; i < 16; ++i) raw[i] = static_cast<uint8_t>(a.v[i]);
  std::memcpy(p, raw, sizeof raw);
}
inline void store_halves(Vec16i a, void* p) {
  uint16_t raw[16];
  for (int i = 0; i < 16; ++i) raw[i] = static_cast<uint16_t>(a.v[i]);
  std::memcpy(p, raw, sizeof raw);
}

struct Bytes64 {
  uint8_t v[64];

  static Bytes64 load(const std::byte* p) {
    Bytes64 r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  Bytes64 low_nibbles() const {
    Bytes64 r;
    for (int i = 0; i < 64; ++i) r.v[i] = v[i] & 15U;
    return r;
  }
  Bytes64 high_nibbles() const {
    Bytes64 r;
    for (int i = 0; i < 64; ++i) r.v[i] = static_cast<uint8_t>(v[i] >> 4);
    return r;
  }
};

struct Dot8 {
  Vec16i lanes;

  static Dot8 zero() { return {Vec16i::zero()}; }
  void add(Bytes64 weights, int32_t quad) {
    int8_t x[4];
    std::memcpy(x, &quad, sizeof x);
    for (int r = 0; r < 16; ++r) {
      for (int j = 0; j < 4; ++j) lanes.v[r] += weights.v[4 * r + j] * x[j];
    }
  }
  Vec16i total() const { return lanes; }
};
using Dot4 = Dot8;

}  // namespace specquant::cpu::scalar
