// Definitions of elementwise.h on sixteen lanes.
#pragma once

#include "cpu/elementwise.h"
#include "cpu/simd.h"

namespace specquant::cpu::SPECQUANT_ISA {

// exp(x) for x clamped to [-87, 88], with a relative error below 2e-7: x = n·ln 2 + r with
// |r| <= ln 2 / 2, and the Taylor polynomial of degree 7 for exp(r), whose remainder is 5e-9.
SPECQUANT_INLINE Vec16f exponential(Vec16f x) {
  x = min(max(x, Vec16f::broadcast(-87.0F)), Vec16f::broadcast(88.0F));
  const Vec16i n = to_int(x * Vec16f::broadcast(1.44269504F));
  const Vec16f whole = to_float(n);
  // ln 2 in two parts; the first has so few bits that n times it is exact.
  Vec16f r = fma(whole, Vec16f::broadcast(-0.693359375F), x);
  r = fma(whole, Vec16f::broadcast(2.12194440e-4F), r);
  Vec16f p = Vec16f::broadcast(1.0F / 5040.0F);
  p = fma(p, r, Vec16f::broadcast(1.0F / 720.0F));
  p = fma(p, r, Vec16f::broadcast(1.0F / 120.0F));
  p = fma(p, r, Vec16f::broadcast(1.0F / 24.0F));
  p = fma(p, r, Vec16f::broadcast(1.0F / 6.0F));
  p = fma(p, r, Vec16f::broadcast(0.5F));
  p = fma(p, r, Vec16f::broadcast(1.0F));
  p = fma(p, r, Vec16f::broadcast(1.0F));
  return p * bits_float(shift_left<23>(n + Vec16i::broadcast(127)));
}

static void rms_norm(const float* x, const float* weight, float epsilon, int size, float* out) {
  Vec16f squares = Vec16f::zero();
  for (int i = 0; i < size; i += 16) {
    const Vec16f value = Vec16f::load(x + i);
    squares = fma(value, value, squares);
  }
  const Vec16f mean = Vec16f::broadcast(sum(squares) / static_cast<float>(size) + epsilon);
  const Vec16f scale = Vec16f::broadcast(1.0F) / sqrt(mean);
  for (int i = 0; i < size; i += 16) {
    (Vec16f::load(x + i) * scale * Vec16f::load(weight + i)).store(out + i);
  }
}

static void rotate(const float* x, const float* cosine, const float* sine, float* out) {
  for (int pair = 0; pair < 8; ++pair) {
    const float a = x[2 * pair];
    const float b = x[2 * pair + 1];
    out[2 * pair] = a * cosine[pair] - b * sine[pair];
    out[2 * pair + 1] = a * sine[pair] + b * cosine[pair];
  }
}

static void round_to_f16(const float* x, uint16_t* out) { Vec16f::load(x).store_f16(out); }

static void silu_product(const float* gate_up, int blocks, float* out) {
  const Vec16f one = Vec16f::broadcast(1.0F);
  for (int block = 0; block < blocks; ++block) {
    const Vec16f gate = Vec16f::load(gate_up + 32 * block);
    const Vec16f up = Vec16f::load(gate_up + 32 * block + 16);
    const Vec16f silu = gate / (one + exponential(Vec16f::zero() - gate));
    (silu * up).store(out + 16 * block);
  }
}

static bool comes_before(const TopEntry& a, const TopEntry& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void insert(float logit, int32_t token, TopList& top) {
  if (!(logit == logit)) logit = -__builtin_inff();
  const TopEntry entry{token, logit};
  int place = top.count;
  if (top.count < top.capacity) {
    ++top.count;
  } else {
    if (!comes_before(entry, top.entries[top.count - 1])) return;
    --place;
  }
  for (; place > 0 && comes_before(entry, top.entries[place - 1]); --place) {
    top.entries[place] = top.entries[place - 1];
  }
  top.entries[place] = entry;
}

static void add_to_top(const float* logits, int size, int32_t first_token, TopList& top) {
  if (top.capacity == 0) return;
  int i = 0;
  for (; i < size && top.count < top.capacity; ++i) insert(logits[i], first_token + i, top);
  // Whole blocks are passed over where nothing in them reaches the last entry.
  for (; i + 64 <= size; i += 64) {
    const Vec16f left = max(Vec16f::load(logits + i), Vec16f::load(logits + i + 16));
    const Vec16f right = max(Vec16f::load(logits + i + 32), Vec16f::load(logits + i + 48));
    if (!(maximum(max(left, right)) >= top.entries[top.count - 1].logit)) continue;
    for (int j = i; j < i + 64; ++j) insert(logits[j], first_token + j, top);
  }
  for (; i < size; ++i) insert(logits[i], first_token + i, top);
}

static LogSumPart log_sum_part(const float* logits, int size) {
  const float lowest = -__builtin_inff();
  float last[16];
  const int whole = size - size % 16;
  for (int i = 0; i < 16; ++i) last[i] = whole + i < size ? logits[whole + i] : lowest;
  Vec16f largest = Vec16f::load(last);
  for (int i = 0; i < whole; i += 16) largest = max(Vec16f::load(logits + i), largest);
  const float peak = maximum(largest);
  const Vec16f shift = Vec16f::broadcast(peak);
  Vec16f total = Vec16f::zero();
  for (int i = 0; i < whole; i += 16) {
    total = total + exponential(Vec16f::load(logits + i) - shift);
  }
  if (whole < size) total = total + exponential(Vec16f::load(last) - shift);
  return {peak, sum(total)};
}

}  // namespace specquant::cpu::SPECQUANT_ISA
