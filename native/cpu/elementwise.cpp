#include "cpu/elementwise.h"

namespace specquant::cpu {

namespace avx512 {
extern const FloatKernels float_table;
}
namespace avx2 {
extern const FloatKernels float_table;
}
namespace scalar {
extern const FloatKernels float_table;
}

const FloatKernels& float_kernels(const std::string& isa) {
  if (isa == "avx512") return avx512::float_table;
  if (isa == "avx2") return avx2::float_table;
  return scalar::float_table;
}

}  // namespace specquant::cpu
