// simd.h for AVX-512 F, BW, DQ, VL, VNNI (and BF16 for dot_bf16).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define SPECQUANT_INLINE [[gnu::always_inline]] inline

namespace specquant::cpu::avx512 {

struct Vec16f {
  __m512 v;

  SPECQUANT_INLINE static Vec16f zero() { return {_mm512_setzero_ps()}; }
  SPECQUANT_INLINE static Vec16f broadcast(float x) { return {_mm512_set1_ps(x)}; }
  SPECQUANT_INLINE static Vec16f load(const float* p) { return {_mm512_loadu_ps(p)}; }
  SPECQUANT_INLINE static Vec16f load_f16(const void* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
  }
  SPECQUANT_INLINE static Vec16f load_bf16(const void* p) {
    const __m256i raw = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16))};
  }
  SPECQUANT_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
  SPECQUANT_INLINE void store_f16(void* p) const {
    const __m256i raw = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(static_cast<__m256i*>(p), raw);
  }
};

SPECQUANT_INLINE Vec16f operator+(Vec16f a, Vec16f b) { return {_mm512_add_ps(a.v, b.v)}; }
SPECQUANT_INLINE Vec16f operator-(Vec16f a, Vec16f b) { return {_mm512_sub_ps(a.v, b.v)}; }
SPECQUANT_INLINE Vec16f operator*(Vec16f a, Vec16f b) { return {_mm512_mul_ps(a.v, b.v)}; }
SPECQUANT_INLINE Vec16f operator/(Vec16f a, Vec16f b) { return {_mm512_div_ps(a.v, b.v)}; }
SPECQUANT_INLINE Vec16f fma(Vec16f a, Vec16f b, Vec16f c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
SPECQUANT_INLINE Vec16f min(Vec16f a, Vec16f b) { return {_mm512_min_ps(a.v, b.v)}; }
SPECQUANT_INLINE Vec16f max(Vec16f a, Vec16f b) { return {_mm512_max_ps(a.v, b.v)}; }
SPECQUANT_INLINE Vec16f abs(Vec16f a) { return {_mm512_abs_ps(a.v)}; }
SPECQUANT_INLINE Vec16f sqrt(Vec16f a) { return {_mm512_sqrt_ps(a.v)}; }

// The tree over lanes: i with i+8, i+4, i+2, i+1.
#define SPECQUANT_REDUCE(NAME, OP256, OP128)                                                   \
  SPECQUANT_INLINE float NAME(Vec16f a) {                                                      \
    const __m256 upper = _mm512_extractf32x8_ps(a.v, 1);                                       \
    const __m256 eight = OP256(_mm512_castps512_ps256(a.v), upper);                            \
    const __m128 four = OP128(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)); \
    const __m128 two = OP128(four, _mm_movehl_ps(four, four));                                 \
    return _mm_cvtss_f32(OP128(two, _mm_movehdup_ps(two)));                                    \
  }
SPECQUANT_REDUCE(sum, _mm256_add_ps, _mm_add_ps)
SPECQUANT_REDUCE(maximum, _mm256_max_ps, _mm_max_ps)
SPECQUANT_REDUCE(minimum, _mm256_min_ps, _mm_min_ps)
#undef SPECQUANT_REDUCE

struct Vec16i {
  __m512i v;

  SPECQUANT_INLINE static Vec16i zero() { return {_mm512_setzero_si512()}; }
  SPECQUANT_INLINE static Vec16i broadcast(int32_t x) { return {_mm512_set1_epi32(x)}; }
  SPECQUANT_INLINE static Vec16i load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
  SPECQUANT_INLINE void store(int32_t* p) const { _mm512_storeu_si512(p, v); }
};

SPECQUANT_INLINE Vec16i operator+(Vec16i a, Vec16i b) { return {_mm512_add_epi32(a.v, b.v)}; }
SPECQUANT_INLINE Vec16i operator-(Vec16i a, Vec16i b) { return {_mm512_sub_epi32(a.v, b.v)}; }
SPECQUANT_INLINE Vec16i operator&(Vec16i a, Vec16i b) { return {_mm512_and_si512(a.v, b.v)}; }
SPECQUANT_INLINE Vec16i operator|(Vec16i a, Vec16i b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int n>
SPECQUANT_INLINE Vec16i shift_left(Vec16i a) {
  return {_mm512_slli_epi32(a.v, n)};
}
template <int n>
SPECQUANT_INLINE Vec16i shift_right(Vec16i a) {
  return {_mm512_srli_epi32(a.v, n)};
}
SPECQUANT_INLINE Vec16i max(Vec16i a, Vec16i b) { return {_mm512_max_epi32(a.v, b.v)}; }
SPECQUANT_INLINE int32_t maximum(Vec16i a) { return _mm512_reduce_max_epi32(a.v); }
SPECQUANT_INLINE int32_t sum(Vec16i a) { return _mm512_reduce_add_epi32(a.v); }
SPECQUANT_INLINE Vec16f to_float(Vec16i a) { return {_mm512_cvtepi32_ps(a.v)}; }
SPECQUANT_INLINE Vec16i to_int(Vec16f a) { return {_mm512_cvtps_epi32(a.v)}; }
SPECQUANT_INLINE Vec16i float_bits(Vec16f a) { return {_mm512_castps_si512(a.v)}; }
SPECQUANT_INLINE Vec16f bits_float(Vec16i a) { return {_mm512_castsi512_ps(a.v)}; }
// The low byte or the low half of each lane.
SPECQUANT_INLINE void store_bytes(Vec16i a, void* p) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
SPECQUANT_INLINE void store_halves(Vec16i a, void* p) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v));
}

struct Bytes64 {
  __m512i v;

  SPECQUANT_INLINE static Bytes64 load(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
  SPECQUANT_INLINE Bytes64 low_nibbles() const {
    return {_mm512_and_si512(v, _mm512_set1_epi8(15))};
  }
  SPECQUANT_INLINE Bytes64 high_nibbles() const {
    return {_mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15))};
  }
};

// acc + the products of 16 pairs of bf16 weights with one pair of activations (AVX512-BF16).
SPECQUANT_INLINE Vec16f dot_bf16(Vec16f acc, Bytes64 pairs, int32_t x) {
  return {_mm512_dpbf16_ps(acc.v, reinterpret_cast<__m512bh>(pairs.v),
                           reinterpret_cast<__m512bh>(_mm512_set1_epi32(x)))};
}

struct Dot8 {
  __m512i v;

  SPECQUANT_INLINE static Dot8 zero() { return {_mm512_setzero_si512()}; }
  SPECQUANT_INLINE void add(Bytes64 weights, int32_t quad) {
    v = _mm512_dpbusd_epi32(v, weights.v, _mm512_set1_epi32(quad));
  }
  SPECQUANT_INLINE Vec16i total() const { return {v}; }
};
using Dot4 = Dot8;

}  // namespace specquant::cpu::avx512
