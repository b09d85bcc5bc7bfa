// Shapes of drafts for the tests of the choice by round.
#pragma once

#include "decode/proposal.h"

namespace specquant::test {

constexpr decode::Shape chain(int gamma) { return {.depth = gamma, .top_k = 1, .nodes = gamma}; }
inline constexpr decode::Shape kTree{.depth = 3, .top_k = 4, .nodes = 12};

}  // namespace specquant::test
