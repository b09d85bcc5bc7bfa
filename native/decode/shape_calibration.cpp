#include "decode/shape_calibration.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/clock.h"

namespace specquant::decode {
namespace {

constexpr int kRepeats = 3;
constexpr int kMostRows = 256;  // of a forward; larger ones are inferred from the two largest

double median_seconds(Model& model, Precision precision, const Want& want,
                      std::span<const Rows> batch) {
  model.forward(precision, batch, want);  // warms up: a device may prepare for a size
  std::array<double, kRepeats> seconds{};
  for (double& one : seconds) {
    const core::Stopwatch clock;
    model.forward(precision, batch, want);
    one = clock.seconds();
  }
  std::ranges::sort(seconds);
  return seconds[kRepeats / 2];
}

}  // namespace

void calibrate(ShapeChooser& chooser, Model& model, Precision precision, const Want& want,
               int sequences, const std::vector<int32_t>& prompt, const PrefillCache* held) {
  const core::Stopwatch clock;
  const HeldPrompt* known = held == nullptr ? nullptr : held->find(precision, prompt, {});
  if (known == nullptr) prefill(model, precision, 0, prompt, {.rows = LogitRows::none, .top_k = 0});
  const auto context = static_cast<int>(prompt.size());
  const auto cache = known == nullptr ? model.save(0, context) : known->cache;
  for (int slot = 0; slot < sequences; ++slot) model.restore(slot, cache);
  int sizes = 0;
  for (const int rows : chooser.calibration_rows()) {
    if (++sizes > 2 && rows * sequences > kMostRows) break;
    const std::vector<int32_t> tokens(static_cast<std::size_t>(rows), 0);
    std::vector<Rows> batch;
    for (int slot = 0; slot < sequences; ++slot) {
      batch.push_back({.slot = slot, .base = context, .tokens = tokens});
    }
    chooser.calibrate(rows * sequences, median_seconds(model, precision, want, batch));
  }
  chooser.add_calibration_time(clock.seconds());
}

}  // namespace specquant::decode
