#include "decode/precision_errors.h"

#include <stdexcept>

#include "core/errors.h"

namespace specquant {

void refuse_stored_kind(Precision precision, const core::TensorView& tensor,
                        const std::string& need) {
  throw core::Error(core::ErrorType::unsupported,
                    "Precision " + std::string(name_of(precision)) + " needs " + need +
                        ", but tensor '" + tensor.name + "' is stored as " +
                        core::name_of(tensor.kind) +
                        ". Choose another precision or device, or pack the checkpoint again.");
}

void refuse_for_f16(const std::string& tensor) {
  throw core::Error(core::ErrorType::model,
                    "Tensor '" + tensor +
                        "' has weights that are too large for fp16. Use bf16 as the 16-bit "
                        "precision.");
}

void refuse_unloaded(Precision precision) {
  throw std::invalid_argument("Precision " + std::string(name_of(precision)) +
                              " was not named when the model was loaded.");
}

}  // namespace specquant
