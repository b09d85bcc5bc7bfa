// The INT4 kernel against exact integers and float64. Skipped, with the reason, without a GPU.
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/half.h"
#include "cuda/int4_multiply.h"
#include "cuda/memory.h"
#include "cuda/weights.h"
#include "tests/cuda_parts.h"
#include "tests/reference_tiles.h"

namespace specquant::cuda {
namespace {

using cpu::WeightKind;
using cpu::reference::random_weights;
using cpu::reference::Weights;

// Activations of every block on another scale, and what their rounding should be: absmax / 7 of 32
// columns is a step.
struct Activations {
  int tokens, columns;
  std::vector<float> value, scale;
  std::vector<int> code;

  Activations(int token_count, int column_count, std::mt19937& random)
      : tokens(token_count), columns(column_count) {
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> size(0.1F, 4.0F);
    for (int block = 0; block < tokens * columns / 32; ++block) {
      const float factor = block % 11 == 5 ? 0.0F : size(random);
      float largest = 0.0F;
      for (int i = 0; i < 32; ++i) {
        value.push_back(factor * normal(random));
        largest = std::max(largest, std::abs(value.back()));
      }
      scale.push_back(largest / 7.0F);
      for (int i = 0; i < 32; ++i) {
        const float x = value[value.size() - 32 + i];
        code.push_back(largest == 0.0F ? 0 : static_cast<int>(std::nearbyint(x / scale.back())));
      }
    }
  }
};

// Weights placed by the engine, and the kernels' answers for activations.
class Product {
 public:
  Product(const Weights& weights, int rows, int columns, int group) : rows_(rows), group_(group) {
    core::TensorView tensor;
    tensor.name = "random";
    tensor.kind = core::TensorKind::affine4;
    tensor.rows = rows;
    tensor.cols = columns;
    tensor.group = weights.matrix.group;
    tensor.bytes = weights.bytes;
    MatrixOrigin origin;
    origin.tensor = &tensor;
    origin.rows = rows;
    origin.columns = columns;
    matrix_ = place_matrix(
        origin, group == 32 ? WeightFormat::affine4_g32 : WeightFormat::affine4_g128, "weights");
  }

  void multiply(const Activations& x) {
    const std::size_t blocks = x.value.size() / 32;
    DeviceBuffer input(x.value.size() * sizeof(float), "activations");
    DeviceBuffer words(blocks * 16, "codes"), scales(blocks * sizeof(float2), "scales");
    const Int4Activations rounded{words.as<uint32_t>(), scales.as<float2>(), x.tokens, x.columns};
    values = std::vector<uint16_t>(static_cast<std::size_t>(x.tokens) * rows_);
    sums = std::vector<int32_t>(blocks * matrix_.shape.tiles * 16);
    DeviceBuffer y(values.size() * 2, "values"), integers(sums.size() * 4, "sums");
    // Poison: f16 NaN, and integers that no sum reaches.
    for (const DeviceBuffer* buffer : {&words, &scales, &y, &integers}) {
      check(cudaMemset(buffer->as<void>(), 0x7f, buffer->bytes()), "poison");
    }
    check(cudaMemcpy(input.as<void>(), x.value.data(), input.bytes(), cudaMemcpyHostToDevice),
          "activations");
    const auto* weights = matrix_.data.as<uint8_t>();
    check(round_to_int4(input.as<float>(), rounded, nullptr), "rounding");
    check(int4_multiply(weights, matrix_.shape, group_, rounded, rows_, y.as<__half>(), nullptr),
          "product");
    check(int4_sums(weights, matrix_.shape, group_, rounded, integers.as<int32_t>(), nullptr),
          "sums");
    check(cudaMemcpy(values.data(), y.as<void>(), y.bytes(), cudaMemcpyDeviceToHost), "values");
    check(cudaMemcpy(sums.data(), integers.as<void>(), integers.bytes(), cudaMemcpyDeviceToHost),
          "sums");
  }

  int32_t sum(int block, int row) const {
    return sums[static_cast<std::size_t>(block) * matrix_.shape.tiles * 16 + row];
  }

  std::vector<uint16_t> values;  // [token][row] f16
  std::vector<int32_t> sums;

 private:
  int rows_, group_;
  DeviceMatrix matrix_;
};

struct Case {
  int rows, columns, stored_group, group, tokens;
};
// Rows that fill no tile, tokens that fill no tile, fewer stages than warps, several grids of
// tokens, groups of 64 as two of 32.
const Case kCases[] = {{16, 128, 128, 128, 1}, {40, 512, 128, 128, 3}, {300, 2048, 128, 128, 21},
                       {16, 128, 32, 32, 4},   {75, 1536, 32, 32, 17}, {48, 640, 64, 32, 5}};

// Random weights and activations of a case, and their product.
struct Multiplied {
  Weights weights;
  Activations x;
  Product product;

  Multiplied(const Case& c, std::mt19937& random)
      : weights(random_weights(WeightKind::affine4, c.rows, c.columns, c.stored_group, random)),
        x(c.tokens, c.columns, random),
        product(weights, c.rows, c.columns, c.group) {
    product.multiply(x);
  }
};

TEST_CASE("integer sums of 4-bit codes are exact") {
  NEEDS_GPU();
  std::mt19937 random(std::random_device{}());
  for (const Case& c : kCases) {
    CAPTURE(c.rows);
    const auto& [weights, x, product] = Multiplied(c, random);
    int wrong = 0;
    for (int block = 0; block < c.tokens * c.columns / 32; ++block) {
      const int column = block * 32 % c.columns;
      for (int row = 0; row < c.rows; ++row) {
        int want = 0;
        for (int i = 0; i < 32; ++i) {
          want += weights.code(row, column + i) * x.code[static_cast<std::size_t>(block) * 32 + i];
        }
        wrong += product.sum(block, row) != want;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("INT4 products stay close to float64 with the same rounding") {
  NEEDS_GPU();
  std::mt19937 random(std::random_device{}());
  for (const Case& c : kCases) {
    CAPTURE(c.rows);
    const auto& [weights, x, product] = Multiplied(c, random);
    double difference = 0.0, norm = 0.0;
    for (int token = 0; token < c.tokens; ++token) {
      for (int row = 0; row < c.rows; ++row) {
        double want = 0.0;
        for (int column = 0; column < c.columns; ++column) {
          const std::size_t at = static_cast<std::size_t>(token) * c.columns + column;
          want += weights.at(row, column) * x.code[at] * x.scale[at / 32];
        }
        const uint16_t bits = product.values[static_cast<std::size_t>(token) * c.rows + row];
        const double off = cpu::float_from_f16(bits) - want;
        difference += off * off;
        norm += want * want;
      }
    }
    CHECK(std::sqrt(difference / norm) < 1e-3);
  }
}

TEST_CASE("INT4 products of a token are the same bits beside any others") {
  NEEDS_GPU();
  std::mt19937 random(std::random_device{}());
  const Weights weights = random_weights(WeightKind::affine4, 48, 1024, 128, random);
  const Activations all(37, 1024, random);
  Product together(weights, 48, 1024, 128), alone(weights, 48, 1024, 128);
  together.multiply(all);
  for (int token = 0; token < all.tokens; ++token) {
    Activations one = all;
    one.tokens = 1;
    one.value.assign(all.value.begin() + token * 1024, all.value.begin() + (token + 1) * 1024);
    alone.multiply(one);
    CHECK(std::memcmp(alone.values.data(), together.values.data() + token * 48, 96) == 0);
  }
}

}  // namespace
}  // namespace specquant::cuda
