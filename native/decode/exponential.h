// The exponential function in a form that compilers make vector code of: traces, scoring and
// sampling take it of every logit of a row.
#pragma once

#include <bit>
#include <cstdint>

namespace specquant::decode {

// e^x for -1e6 <= x <= 0, to a relative error of 3e-7; near 1e-38 instead of less below -87. 2^n by
// its exponent bits, times a Taylor polynomial of the rest, |r| <= ln 2 / 2.
inline float exponential(float x) {
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest whole number
  const float shifted = x * 1.44269504F + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;  // ln 2 in two parts
  float sum = 1.0F / 720.0F * r + 1.0F / 120.0F;
  sum = sum * r + 1.0F / 24.0F;
  sum = sum * r + 1.0F / 6.0F;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  // The rounder's own bits are taken off; a comparison of floats would keep this from being a
  // vector.
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRounder);
  const int32_t kept = exponent > -126 ? exponent : -126;
  return sum * std::bit_cast<float>((kept + 127) << 23);
}

}  // namespace specquant::decode
