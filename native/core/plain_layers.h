// What an engine says that serves none of the format's optional parts of a layer.
#pragma once

#include <string>

#include "core/packed_file.h"

namespace specquant::core {

// Throws Error of type `unsupported` that names the first part of the file which goes beyond a
// plain Llama's layers: an online Hadamard transform, biases of q, k and v, norms of q and k, or
// columns in an order of their own. `engine` is named in the message.
void require_plain_layers(const PackedFile& file, const std::string& engine);

}  // namespace specquant::core
