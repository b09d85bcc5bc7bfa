// Errors that a caller of the worker may see, each with its type in docs/protocol.md.
#pragma once

#include <stdexcept>
#include <string>

namespace specquant::core {

enum class ErrorType { bad_request, unsupported, model, out_of_memory, device, internal };

const char* name_of(ErrorType type);

class Error : public std::runtime_error {
 public:
  Error(ErrorType type, const std::string& message) : std::runtime_error(message), type_(type) {}
  ErrorType type() const { return type_; }

 private:
  ErrorType type_;
};

}  // namespace specquant::core
