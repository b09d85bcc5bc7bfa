// What every device says of weights that a precision cannot use.
#pragma once

#include "core/packed_tensor.h"
#include "decode/device.h"

namespace specquant {

// core::Error of type `unsupported`: `tensor` is not stored as the precision needs (`need`).
[[noreturn]] void refuse_stored_kind(Precision precision, const core::TensorView& tensor,
                                     const std::string& need);
// core::Error of type `model`: weights beyond the range of f16.
[[noreturn]] void refuse_for_f16(const std::string& tensor);
// std::invalid_argument: a forward at a precision that the model was not loaded for.
[[noreturn]] void refuse_unloaded(Precision precision);

}  // namespace specquant
