// The Hadamard transform of elementwise.h. Every output is one chain of additions in a fixed order,
// so that it is the same on every instruction set however the compiler vectorizes the loops.
#pragma once

#include "cpu/elementwise.h"

namespace specquant::cpu::SPECQUANT_ISA {

// Sylvester's transform of one block, `power` values, as k stages of sums and differences.
static void butterflies(const float* x, int power, float* out) {
  for (int i = 0; i < power; ++i) out[i] = x[i];
  for (int step = 1; step < power; step *= 2) {
    for (int start = 0; start < power; start += 2 * step) {
      for (int i = start; i < start + step; ++i) {
        const float first = out[i];
        const float second = out[i + step];
        out[i] = first + second;
        out[i + step] = first - second;
      }
    }
  }
}

static void hadamard(const HadamardTask& task) {
  const int order = task.order;
  const int power = task.power;
  for (int block = 0; block < order; ++block) {
    butterflies(task.x + block * power, power, task.scratch + block * power);
  }
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(order * power));
  for (int row = 0; row < order; ++row) {
    float* out = task.out + row * power;
    for (int i = 0; i < power; ++i) out[i] = 0.0F;
    for (int block = 0; block < order; ++block) {
      const float sign = task.signs[row * order + block];
      const float* from = task.scratch + block * power;
      for (int i = 0; i < power; ++i) out[i] += sign * from[i];
    }
    for (int i = 0; i < power; ++i) out[i] *= scale;
  }
}

}  // namespace specquant::cpu::SPECQUANT_ISA
