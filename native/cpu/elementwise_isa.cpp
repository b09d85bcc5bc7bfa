// The float kernels of one instruction set.
#include "cpu/attention.inl"
#include "cpu/elementwise.inl"
#include "cpu/hadamard.inl"

namespace specquant::cpu::SPECQUANT_ISA {

extern const FloatKernels float_table;
const FloatKernels float_table{rms_norm,   rotate,   round_to_f16, silu_product,
                               add_to_top, hadamard, log_sum_part, attend};

}  // namespace specquant::cpu::SPECQUANT_ISA
