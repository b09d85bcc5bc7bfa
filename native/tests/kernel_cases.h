// Pairs of weights and activations for the kernels, random rows, and products of them.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cpu/kernels.h"
#include "tests/reference_tiles.h"

namespace specquant::cpu::reference {

struct Pair {
  WeightKind weights;
  ActivationKind activations;
  int group;
  const char* name;
};

inline constexpr Pair kPairs[] = {
    {WeightKind::f16, ActivationKind::f32, 0, "f16 x f32"},
    {WeightKind::bf16, ActivationKind::bf16, 0, "bf16 x bf16"},
    {WeightKind::affine4, ActivationKind::i16, 32, "affine4/32 x i16"},
    {WeightKind::affine4, ActivationKind::i16, 64, "affine4/64 x i16"},
    {WeightKind::affine4, ActivationKind::i16, 128, "affine4/128 x i16"},
    {WeightKind::affine4, ActivationKind::i8, 32, "affine4/32 x i8"},
    {WeightKind::affine4, ActivationKind::i8, 64, "affine4/64 x i8"},
    {WeightKind::affine4, ActivationKind::i8, 128, "affine4/128 x i8"},
    {WeightKind::affine4, ActivationKind::u4, 32, "affine4/32 x u4"},
    {WeightKind::affine4, ActivationKind::u4, 64, "affine4/64 x u4"},
    {WeightKind::affine4, ActivationKind::u4, 128, "affine4/128 x u4"},
    {WeightKind::affine4, ActivationKind::u4g16, 32, "affine4/32 x u4g16"},
    {WeightKind::affine4, ActivationKind::u4g16, 128, "affine4/128 x u4g16"},
    {WeightKind::affine4z, ActivationKind::u4g16, 64, "affine4z/64 x u4g16"},
    {WeightKind::affine8, ActivationKind::u4g16, 64, "affine8/64 x u4g16"},
    {WeightKind::affine4z, ActivationKind::i16, 128, "affine4z/128 x i16"},
    {WeightKind::affine4z, ActivationKind::i8, 32, "affine4z/32 x i8"},
    {WeightKind::affine4z, ActivationKind::u4, 64, "affine4z/64 x u4"},
    {WeightKind::affine8, ActivationKind::i16, 32, "affine8/32 x i16"},
    {WeightKind::affine8, ActivationKind::i8, 32, "affine8/32 x i8"},
    {WeightKind::affine8, ActivationKind::i8, 128, "affine8/128 x i8"},
    {WeightKind::affine8, ActivationKind::u4, 64, "affine8/64 x u4"},
};
inline constexpr int kRows = 53, kCols = 384;  // four tiles, the last with five rows

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

inline std::mt19937 fresh_random() {
  const unsigned seed = std::random_device{}();
  MESSAGE("seed ", seed);
  return std::mt19937(seed);
}

// The kernels of every instruction set that this processor has.
inline std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> found;
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    if (const KernelTable* table = kernels(name)) found.push_back(table);
  }
  return found;
}

// Rows whose groups differ in size and mean, as activations do.
inline std::vector<float> random_rows(int rows, int cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(rows) * cols);
  float mean = 0.0F, size = 1.0F;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % kActivationGroup == 0) {
      size = std::exp(normal(random));
      mean = size * normal(random);
    }
    x[i] = mean + size * normal(random);
  }
  return x;
}

inline PackedRows packed(const KernelTable& table, ActivationKind kind, const float* x, int rows,
                         int cols) {
  PackedRows out;
  out.prepare(kind, rows, cols);
  table.pack(x, static_cast<std::size_t>(cols), 0, rows, out);
  return out;
}

// [row][output], with poison before and between, and a check that nothing else was written.
inline std::vector<float> product(const KernelTable& table, const Weights& w, const PackedRows& x,
                                  const std::vector<int>& cuts = {}) {
  const std::size_t stride = static_cast<std::size_t>(w.matrix.rows) + 3;
  std::vector<float> y(stride * x.rows, kPoison);
  int begin = 0;
  for (int cut : cuts) {
    table.matmul(w.matrix, x, begin, cut, y.data(), stride, false);
    begin = cut;
  }
  table.matmul(w.matrix, x, begin, w.matrix.tile_count(), y.data(), stride, false);
  std::vector<float> out;
  bool margin_untouched = true;
  for (int row = 0; row < x.rows; ++row) {
    const float* from = y.data() + stride * row;
    out.insert(out.end(), from, from + w.matrix.rows);
    for (int i = 0; i < 3; ++i) margin_untouched &= std::isnan(from[w.matrix.rows + i]);
  }
  CHECK(margin_untouched);
  return out;
}

inline bool same_bits(const float* a, const float* b, std::size_t count) {
  return count == 0 || std::memcmp(a, b, count * sizeof(float)) == 0;
}

}  // namespace specquant::cpu::reference
