// f16 and bf16 weights: fused multiply-adds in two chains of sums, added at the end. Two chains
// hide the latency at few rows, and are kept at many so that the result does not change.
#pragma once

#include <cstring>

#include "cpu/kernels.h"
#include "cpu/row_block.inl"
#include "cpu/simd.h"

namespace specquant::cpu::SPECQUANT_ISA {

struct WeightPair {
  Vec16f even, odd;  // of two neighbouring columns
};

struct F16Weights {
  SPECQUANT_INLINE static WeightPair load(const std::byte* p) {
    return {Vec16f::load_f16(p), Vec16f::load_f16(p + 32)};
  }
};

// bf16 where the processor has no bf16: products and sums as in f32.
struct Bf16Weights {
  SPECQUANT_INLINE static WeightPair load(const std::byte* p) {
    const Vec16i pairs = Vec16i::load(reinterpret_cast<const int32_t*>(p));
    return {bits_float(shift_left<16>(pairs)),
            bits_float(pairs & Vec16i::broadcast(static_cast<int32_t>(0xFFFF0000U)))};
  }
};

// One chain of even columns, one of odd ones. Weights `ahead` bytes on are prefetched.
template <class Weights, int count>
void multiply_floats(const Matrix& matrix, const std::byte* tile, const RowBlock& x, int first,
                     std::ptrdiff_t ahead, const Output& out) {
  const std::byte* value = x.data + 4 * first;
  const std::size_t stride = 4 * static_cast<std::size_t>(x.rows);
  const auto broadcast = [](const std::byte* p) {
    float f;
    std::memcpy(&f, p, 4);
    return Vec16f::broadcast(f);
  };
  Vec16f even[count], odd[count];
  for (int r = 0; r < count; ++r) even[r] = odd[r] = Vec16f::zero();
  for (int column = 0; column < matrix.cols; column += 2) {
    prefetch<(count >= kPrefetchRows)>(tile + ahead);
    const WeightPair w = Weights::load(tile);
    for (int r = 0; r < count; ++r) even[r] = fma(w.even, broadcast(value + 4 * r), even[r]);
    value += stride;
    for (int r = 0; r < count; ++r) odd[r] = fma(w.odd, broadcast(value + 4 * r), odd[r]);
    value += stride;
    tile += 64;
  }
  for (int r = 0; r < count; ++r) out.put(first + r, even[r] + odd[r]);
}

#if defined(SPECQUANT_SIMD_AVX512)
// One chain of even pairs of columns, one of odd ones.
template <int count>
void multiply_native_bf16(const Matrix& matrix, const std::byte* tile, const RowBlock& x, int first,
                          std::ptrdiff_t ahead, const Output& out) {
  const std::byte* pair = x.data + 4 * first;
  const std::size_t stride = 4 * static_cast<std::size_t>(x.rows);
  const auto load = [](const std::byte* p) {
    int32_t bits;
    std::memcpy(&bits, p, 4);
    return bits;
  };
  Vec16f even[count], odd[count];
  for (int r = 0; r < count; ++r) even[r] = odd[r] = Vec16f::zero();
  for (int column = 0; column < matrix.cols; column += 4) {
    prefetch<(count >= kNativeBf16PrefetchRows)>(tile + ahead);
    prefetch<(count >= kNativeBf16PrefetchRows)>(tile + ahead + 64);
    const Bytes64 first_pair = Bytes64::load(tile);
    for (int r = 0; r < count; ++r) even[r] = dot_bf16(even[r], first_pair, load(pair + 4 * r));
    pair += stride;
    const Bytes64 second_pair = Bytes64::load(tile + 64);
    for (int r = 0; r < count; ++r) odd[r] = dot_bf16(odd[r], second_pair, load(pair + 4 * r));
    pair += stride;
    tile += 128;
  }
  for (int r = 0; r < count; ++r) out.put(first + r, even[r] + odd[r]);
}
#endif

}  // namespace specquant::cpu::SPECQUANT_ISA
