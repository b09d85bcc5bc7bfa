#include "worker/forward_curve.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "core/clock.h"
#include "decode/prefill.h"

namespace specquant::worker {
namespace {

constexpr uint32_t kOrderSeed = 1;

// Any tokens do: no kernel's time depends on them.
std::vector<int32_t> some_tokens(int count, int vocabulary) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>((i * 7919 + 17) % vocabulary));
  }
  return tokens;
}

// A binary tree in breadth-first order: row i hangs on row (i − 1) / 2.
std::vector<uint64_t> binary_tree(int rows) {
  std::vector<uint64_t> ancestors{1};
  for (int i = 1; i < rows; ++i) {
    ancestors.push_back(ancestors[static_cast<std::size_t>((i - 1) / 2)] | (uint64_t{1} << i));
  }
  return ancestors;
}

}  // namespace

std::map<int, std::vector<double>> forward_times(Model& model, const ForwardRequest& request) {
  const int vocabulary = model.shape().vocabulary;
  // Nor on the features that a head is given.
  const auto width = static_cast<std::size_t>(model.shape().feature_width);
  const auto most = static_cast<std::size_t>(std::max(request.context, *request.rows.rbegin()));
  const std::vector<float> features(width * most, 0.5F);
  const auto features_of = [&](int rows) {
    return std::span(features).first(width * static_cast<std::size_t>(rows));
  };
  if (request.context > 0) {
    decode::prefill(model, request.precision, 0, some_tokens(request.context, vocabulary), {},
                    features_of(request.context));
    const auto filled = model.save(0, request.context);
    for (int slot = 1; slot < request.batch; ++slot) model.restore(slot, filled);
  }
  const std::vector<int32_t> tokens = some_tokens(*request.rows.rbegin(), vocabulary);
  const Want want{.rows = LogitRows::all, .top_k = 1};
  const auto timed = [&](int rows) {
    const std::vector<uint64_t> ancestors =
        request.tree ? binary_tree(rows) : std::vector<uint64_t>();
    std::vector<Rows> batch;
    for (int slot = 0; slot < request.batch; ++slot) {
      batch.push_back({.slot = slot,
                       .base = request.context,
                       .tokens = std::span(tokens).first(static_cast<std::size_t>(rows)),
                       .ancestors = ancestors,
                       .features = features_of(rows)});
    }
    const core::Stopwatch watch;
    model.forward(request.precision, batch, want);
    return watch.seconds();
  };

  std::map<int, std::vector<double>> times;
  std::vector<int> order(request.rows.begin(), request.rows.end());
  std::mt19937 random(kOrderSeed);
  for (const int rows : order) timed(rows);
  for (int repeat = 0; repeat < request.repeats; ++repeat) {
    std::ranges::shuffle(order, random);
    for (const int rows : order) times[rows].push_back(timed(rows));
  }
  return times;
}

}  // namespace specquant::worker
