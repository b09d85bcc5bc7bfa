// Times the target's forwards for the choice of a shape, before a run begins.
#pragma once

#include "decode/device.h"
#include "decode/prefill.h"
#include "decode/shape_choice.h"

namespace specquant::decode {

// Forwards of `sequences` slots behind `prompt`, which is computed unless `held` has it. What they
// leave in the cache, the run overwrites.
void calibrate(ShapeChooser& chooser, Model& model, Precision precision, const Want& want,
               int sequences, const std::vector<int32_t>& prompt, const PrefillCache* held);

}  // namespace specquant::decode
