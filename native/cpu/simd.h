// Sixteen lanes of f32 or i32, with the same results on every instruction set.
//
// A translation unit defines exactly one of SPECQUANT_SIMD_AVX512, SPECQUANT_SIMD_AVX2 or
// SPECQUANT_SIMD_SCALAR before including this; everything then lives in the namespace
// specquant::cpu::SPECQUANT_ISA, so that the linker never takes a function compiled for one
// instruction set for another. Code on top is written once, in .inl files, as
//
//   namespace specquant::cpu::SPECQUANT_ISA { ... }
//
// and should call nothing of the standard library that the compiler could leave out of line.
//
// Vec16f    zero, broadcast, load, load_f16, load_bf16, store, store_f16, + - * /, fma(a, b, c) =
// a·b + c
//           (one rounding), min, max (the second operand where unordered), abs, sqrt,
//           sum, maximum, minimum (over lanes: i with i+8, then i+4, i+2, i+1)
// Vec16i    zero, broadcast, load, store, + -, & |, shift_left<n>, shift_right<n> (logical), max,
// maximum,
//           sum, store_bytes, store_halves (the low byte or half of each lane),
//           to_float (to nearest even), to_int (to nearest even), float_bits, bits_float
// Bytes64   64 weight bytes: load, low_nibbles, high_nibbles
// Dot4, Dot8  sums over one group of 32 columns: lane r gains Σ_j weights[4r+j] · quad byte j.
//           Weights are 0..15 (Dot4) or 0..255 (Dot8), the quad's four bytes signed. Exact.
#pragma once

#if defined(SPECQUANT_SIMD_AVX512)
#define SPECQUANT_ISA avx512
#include "cpu/simd_avx512.h"
#elif defined(SPECQUANT_SIMD_AVX2)
#define SPECQUANT_ISA avx2
#include "cpu/simd_avx2.h"
#elif defined(SPECQUANT_SIMD_SCALAR)
#define SPECQUANT_ISA scalar
#include "cpu/simd_scalar.h"
#else
#error "Define SPECQUANT_SIMD_AVX512, SPECQUANT_SIMD_AVX2 or SPECQUANT_SIMD_SCALAR."
#endif
