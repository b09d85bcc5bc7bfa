// simd.h for AVX2, FMA and F16C: two halves of eight lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define SPECQUANT_INLINE [[gnu::always_inline]] inline

namespace specquant::cpu::avx2 {

struct Vec16f {
  __m256 lo, hi;

  SPECQUANT_INLINE static Vec16f zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  SPECQUANT_INLINE static Vec16f broadcast(float x) {
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
  }
  SPECQUANT_INLINE static Vec16f load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  }
  SPECQUANT_INLINE static Vec16f load_f16(const void* p) {
    const auto* raw = static_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(raw)), _mm256_cvtph_ps(_mm_loadu_si128(raw + 1))};
  }
  SPECQUANT_INLINE static Vec16f load_bf16(const void* p) {
    const auto* raw = static_cast<const __m128i*>(p);
    const __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128(raw));
    const __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128(raw + 1));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
  }
  SPECQUANT_INLINE void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  SPECQUANT_INLINE void store_f16(void* p) const {
    auto* raw = static_cast<__m128i*>(p);
    _mm_storeu_si128(raw, _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(raw + 1, _mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

SPECQUANT_INLINE Vec16f operator+(Vec16f a, Vec16f b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
SPECQUANT_INLINE Vec16f operator-(Vec16f a, Vec16f b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
SPECQUANT_INLINE Vec16f operator*(Vec16f a, Vec16f b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
SPECQUANT_INLINE Vec16f operator/(Vec16f a, Vec16f b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
SPECQUANT_INLINE Vec16f fma(Vec16f a, Vec16f b, Vec16f c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
SPECQUANT_INLINE Vec16f min(Vec16f a, Vec16f b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
SPECQUANT_INLINE Vec16f max(Vec16f a, Vec16f b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
SPECQUANT_INLINE Vec16f abs(Vec16f a) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}
SPECQUANT_INLINE Vec16f sqrt(Vec16f a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }

// The tree over lanes: i with i+8, i+4, i+2, i+1.
#define SPECQUANT_REDUCE(NAME, OP256, OP128)                                                   \
  SPECQUANT_INLINE float NAME(Vec16f a) {                                                      \
    const __m256 eight = OP256(a.lo, a.hi);                                                    \
    const __m128 four = OP128(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)); \
    const __m128 two = OP128(four, _mm_movehl_ps(four, four));                                 \
    return _mm_cvtss_f32(OP128(two, _mm_movehdup_ps(two)));                                    \
  }
SPECQUANT_REDUCE(sum, _mm256_add_ps, _mm_add_ps)
SPECQUANT_REDUCE(maximum, _mm256_max_ps, _mm_max_ps)
SPECQUANT_REDUCE(minimum, _mm256_min_ps, _mm_min_ps)
#undef SPECQUANT_REDUCE

struct Vec16i {
  __m256i lo, hi;

  SPECQUANT_INLINE static Vec16i zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  SPECQUANT_INLINE static Vec16i broadcast(int32_t x) {
    return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
  }
  SPECQUANT_INLINE static Vec16i load(const int32_t* p) {
    const auto* raw = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(raw), _mm256_loadu_si256(raw + 1)};
  }
  SPECQUANT_INLINE void store(int32_t* p) const {
    auto* raw = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(raw, lo);
    _mm256_storeu_si256(raw + 1, hi);
  }
};

SPECQUANT_INLINE Vec16i operator+(Vec16i a, Vec16i b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
SPECQUANT_INLINE Vec16i operator-(Vec16i a, Vec16i b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
SPECQUANT_INLINE Vec16i operator&(Vec16i a, Vec16i b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
SPECQUANT_INLINE Vec16i operator|(Vec16i a, Vec16i b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
template <int n>
SPECQUANT_INLINE Vec16i shift_left(Vec16i a) {
  return {_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)};
}
template <int n>
SPECQUANT_INLINE Vec16i shift_right(Vec16i a) {
  return {_mm256_srli_epi32(a.lo, n), _mm256_srli_epi32(a.hi, n)};
}
SPECQUANT_INLINE Vec16i max(Vec16i a, Vec16i b) {
  return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
SPECQUANT_INLINE int32_t maximum(Vec16i a) {
  const __m256i eight = _mm256_max_epi32(a.lo, a.hi);
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}
SPECQUANT_INLINE int32_t sum(Vec16i a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}
SPECQUANT_INLINE Vec16f to_float(Vec16i a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
SPECQUANT_INLINE Vec16i to_int(Vec16f a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
SPECQUANT_INLINE Vec16i float_bits(Vec16f a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
SPECQUANT_INLINE Vec16f bits_float(Vec16i a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
// The low byte or the low half of each lane.
SPECQUANT_INLINE void store_halves(Vec16i a, void* p) {
  const __m256i mask = _mm256_set1_epi32(0xFFFF);
  const __m256i mixed =
      _mm256_packus_epi32(_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask));
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(mixed, 0xD8));
}
SPECQUANT_INLINE void store_bytes(Vec16i a, void* p) {
  const __m256i mask = _mm256_set1_epi32(0xFF);
  const __m256i mixed =
      _mm256_packus_epi32(_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask));
  const __m256i halves = _mm256_permute4x64_epi64(mixed, 0xD8);
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm_packus_epi16(_mm256_castsi256_si128(halves),
                                                              _mm256_extracti128_si256(halves, 1)));
}

struct Bytes64 {
  __m256i lo, hi;

  SPECQUANT_INLINE static Bytes64 load(const std::byte* p) {
    const auto* raw = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(raw), _mm256_loadu_si256(raw + 1)};
  }
  SPECQUANT_INLINE Bytes64 low_nibbles() const {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(lo, mask), _mm256_and_si256(hi, mask)};
  }
  SPECQUANT_INLINE Bytes64 high_nibbles() const {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(lo, 4), mask),
            _mm256_and_si256(_mm256_srli_epi16(hi, 4), mask)};
  }
};

// Pairs are summed in 16 bits: 8 additions of at most 2·15·128 stay below 2^15.
struct Dot4 {
  __m256i lo, hi;

  SPECQUANT_INLINE static Dot4 zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  SPECQUANT_INLINE void add(Bytes64 weights, int32_t quad) {
    const __m256i x = _mm256_set1_epi32(quad);
    lo = _mm256_add_epi16(lo, _mm256_maddubs_epi16(weights.lo, x));
    hi = _mm256_add_epi16(hi, _mm256_maddubs_epi16(weights.hi, x));
  }
  SPECQUANT_INLINE Vec16i total() const {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(lo, ones), _mm256_madd_epi16(hi, ones)};
  }
};

// maddubs saturates on 8-bit weights, so they go in as two nibbles.
struct Dot8 {
  Dot4 low, high;

  SPECQUANT_INLINE static Dot8 zero() { return {Dot4::zero(), Dot4::zero()}; }
  SPECQUANT_INLINE void add(Bytes64 weights, int32_t quad) {
    low.add(weights.low_nibbles(), quad);
    high.add(weights.high_nibbles(), quad);
  }
  SPECQUANT_INLINE Vec16i total() const { return low.total() + shift_left<4>(high.total()); }
};

}  // namespace specquant::cpu::avx2
