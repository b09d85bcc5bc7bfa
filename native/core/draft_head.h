// Whether a draft head belongs to a target.
#pragma once

#include "core/packed_file.h"

namespace specquant::core {

// Throws Error of type `model` that says what to do where `head` is no draft head, was trained for
// another model than `target`, or does not fit its vocabulary or, where it takes the target's
// embedding or output head, its width.
void check_target(const PackedFile& head, const PackedFile& target);

}  // namespace specquant::core
