#include "core/errors.h"

namespace specquant::core {

const char* name_of(ErrorType type) {
  switch (type) {
    case ErrorType::bad_request:
      return "bad_request";
    case ErrorType::unsupported:
      return "unsupported";
    case ErrorType::model:
      return "model";
    case ErrorType::out_of_memory:
      return "out_of_memory";
    case ErrorType::device:
      return "device";
    case ErrorType::internal:
      return "internal";
  }
  return "internal";
}

}  // namespace specquant::core
