"""The weight formats of the llama.cpp backend, and what llama.cpp computes with each."""

from __future__ import annotations

PRECISION_OF = {"f16": "fp16", "q8_0": "w8a8", "q4_0": "w4a8", "q4_1": "w4a8"}
"""On a CPU its integer formats multiply by 8-bit activations."""

COMPUTE_DTYPE = {
    "f16": "f16 activations, sums as ggml chooses (f32 on x86)",
    "q8_0": "8-bit activations in groups of 32 (Q8_0), f32 sums",
    "q4_0": "8-bit activations in groups of 32 (Q8_0), f32 sums",
    "q4_1": "8-bit activations in groups of 32 (Q8_1), f32 sums",
}
