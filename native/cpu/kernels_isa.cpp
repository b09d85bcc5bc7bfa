// The kernels of one instruction set; CMake compiles this file once for each.
#include "cpu/kernels.h"
#include "cpu/matmul.inl"
#include "cpu/pack.inl"

namespace specquant::cpu::SPECQUANT_ISA {

#define SPECQUANT_TEXT_OF(NAME) #NAME
#define SPECQUANT_TEXT(NAME) SPECQUANT_TEXT_OF(NAME)

const KernelTable& table(bool native_bf16) {
#if defined(SPECQUANT_SIMD_AVX512)
  static constexpr KernelTable with_bf16{
      SPECQUANT_TEXT(SPECQUANT_ISA), true, pack<true>, pack_columns<true>, matmul<true>,
      integer_accumulators};
  if (native_bf16) return with_bf16;
#else
  static_cast<void>(native_bf16);
#endif
  static constexpr KernelTable plain{
      SPECQUANT_TEXT(SPECQUANT_ISA), false,         pack<false>,
      pack_columns<false>,           matmul<false>, integer_accumulators};
  return plain;
}

}  // namespace specquant::cpu::SPECQUANT_ISA
