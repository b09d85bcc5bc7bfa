// What the tests of the CUDA engine share: whether there is a GPU, and rows as bits.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/errors.h"
#include "cuda/model.h"

namespace specquant::test {

// Why there is no GPU, or nothing.
inline const std::optional<std::string>& missing_gpu() {
  static const std::optional<std::string> reason = []() -> std::optional<std::string> {
    try {
      cuda::describe_device();
      return std::nullopt;
    } catch (const core::Error& error) {
      return error.what();
    }
  }();
  return reason;
}

#define NEEDS_GPU()                                        \
  if (specquant::test::missing_gpu()) {                    \
    MESSAGE("skipped: ", *specquant::test::missing_gpu()); \
    return;                                                \
  }

inline std::vector<int32_t> random_tokens(int count, std::mt19937& random, int vocabulary = 300) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % vocabulary);
  return tokens;
}

// What is compared of a row, as bits: its logits, log-sum, best token and features.
struct Row {
  std::vector<float> values;
  bool operator==(const Row& other) const {
    return values.size() == other.values.size() &&
           std::memcmp(values.data(), other.values.data(), values.size() * sizeof(float)) == 0;
  }
};

inline std::vector<Row> forward(Model& model, Precision precision, const std::vector<Rows>& batch,
                                std::span<const int> taps = {}) {
  model.forward(precision, batch, {LogitRows::all, 1, true, true, taps});
  std::size_t count = 0;
  for (const Rows& rows : batch) count += rows.tokens.size();
  std::vector<Row> out;
  for (std::size_t row = 0; row < count; ++row) {
    std::vector<float> values(model.logits(row).begin(), model.logits(row).end());
    values.push_back(model.log_sum(row));
    values.push_back(static_cast<float>(model.top(row)[0].token));
    if (!taps.empty()) {
      values.insert(values.end(), model.features(row).begin(), model.features(row).end());
    }
    out.push_back({std::move(values)});
  }
  return out;
}

}  // namespace specquant::test
