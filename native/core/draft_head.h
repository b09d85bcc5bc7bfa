// Whether a draft head belongs to a target.
#pragma once

#include "core/packed_file.h"

namespace specquant::core {

// Throws Error of type `model` that says what to do where `file` is a draft head and `target` is
// null, and where there is a target but `file` is no draft head, was trained for another model, or
// does not fit the target's vocabulary or, where it takes the target's embedding or output head,
// its width.
void check_target(const PackedFile& file, const PackedFile* target);

}  // namespace specquant::core
