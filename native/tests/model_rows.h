// Rows of a model on any device: random tokens and trees, results as bits, and their order.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "decode/device.h"

namespace specquant::test {

using Tokens = std::vector<int32_t>;

inline Tokens random_tokens(int count, std::mt19937& random, int vocabulary = 300) {
  Tokens tokens(static_cast<std::size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % vocabulary);
  return tokens;
}

struct Tree {
  Tokens tokens;
  std::vector<uint64_t> ancestors;
};

// Every node's parent is any earlier node, or the last cached token.
inline Tree random_tree(int nodes, std::mt19937& random) {
  Tree tree{random_tokens(nodes, random), {}};
  for (int i = 0; i < nodes; ++i) {
    const auto parent = static_cast<int>(random() % (i + 1)) - 1;
    const uint64_t above = parent < 0 ? 0 : tree.ancestors[static_cast<std::size_t>(parent)];
    tree.ancestors.push_back(above | uint64_t{1} << i);
  }
  return tree;
}

inline std::vector<int> path_of(uint64_t ancestors) {
  std::vector<int> path;
  for (int i = 0; i < 64; ++i) {
    if ((ancestors >> i & 1) != 0) path.push_back(i);
  }
  return path;
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

inline std::vector<Row> one_by_one(Model& model, Precision precision, int slot,
                                   const Tokens& tokens, std::span<const int> taps = {}) {
  std::vector<Row> out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Rows rows{slot, static_cast<int>(i), std::span(tokens).subspan(i, 1), {}};
    out.push_back(forward(model, precision, {rows}, taps)[0]);
  }
  return out;
}

// The `k` best tokens and the log-sum of a row are those of its logits.
inline void check_ranked(const Model& model, std::size_t row, int k, double tolerance) {
  const auto logits = model.logits(row);
  std::vector<int> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::stable_sort(order, [&](int a, int b) { return logits[a] > logits[b]; });
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (int i = 0; i < k; ++i) {
    CHECK(model.top(row)[i].token == order[i]);
    CHECK(model.top(row)[i].logit == logits[order[i]]);
  }
  CHECK(model.log_sum(row) == doctest::Approx(std::log(total)).epsilon(tolerance));
}

}  // namespace specquant::test
