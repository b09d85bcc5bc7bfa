// Time of a forward on the GPU by number of rows, for synthetic models: T(n), tokens a second, and
// the share of the memory's measured rate that the weights alone account for. One JSON object a
// line.
//
//   cuda_bench MODEL PRECISION... [--context N] [--batch] [--repeats N]
//
// `--batch` times n sequences of one row in place of one sequence of n rows.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "core/clock.h"
#include "cuda/model.h"

namespace specquant {
namespace {

struct Options {
  std::string model;
  std::vector<Precision> precisions;
  int context = 256, repeats = 20;
  bool batch = false;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void bench(const Options& options) {
  const core::SyntheticModel synthetic{options.model, cuda::synthetic_shape(options.model), 1};
  const double bandwidth = cuda::measure_read_bandwidth();
  const auto device = cuda::describe_device();
  for (const Precision precision : options.precisions) {
    const int slots = options.batch ? 64 : 1;
    const auto model =
        cuda::make_cuda_model(synthetic, {&precision, 1}, slots, options.context + 64);
    std::vector<int32_t> tokens;
    for (int i = 0; i < options.context; ++i) tokens.push_back((i * 7919 + 17) % 32000);
    const Rows prompt{0, 0, tokens, {}};
    if (options.context > 0) {
      model->forward(precision, {&prompt, 1}, {LogitRows::none, 0, false, false});
      const auto saved = model->save(0, options.context);
      for (int slot = 1; slot < slots; ++slot) model->restore(slot, saved);
    }
    const double bytes = static_cast<double>(model->proof(precision).bytes_per_token);
    double single = 0.0;
    for (const int n : {1, 2, 4, 8, 16, 32, 64}) {
      std::vector<int32_t> rows_tokens(tokens.begin(), tokens.begin() + std::min(n, 64));
      std::vector<Rows> batch;
      if (options.batch) {
        for (int slot = 0; slot < n; ++slot) {
          batch.push_back({slot, options.context, std::span(rows_tokens).subspan(slot, 1), {}});
        }
      } else {
        batch.push_back({0, options.context, rows_tokens, {}});
      }
      std::vector<double> seconds;
      for (int i = -3; i < options.repeats; ++i) {
        const core::Stopwatch watch;
        model->forward(precision, batch, {LogitRows::all, 1, false, false});
        if (i >= 0) seconds.push_back(watch.seconds());
      }
      const double t = median(seconds);
      if (n == 1) single = t;
      std::printf(
          "{\"device\": \"%s\", \"model\": \"%s\", \"precision\": \"%s\", \"context\": %d, \"%s\": "
          "%d, "
          "\"median_ms\": %.4f, \"min_ms\": %.4f, \"max_ms\": %.4f, \"repeats\": %d, "
          "\"ratio_to_1\": %.3f, "
          "\"tokens_s\": %.1f, \"weight_gb_s\": %.0f, \"read_gb_s\": %.0f}\n",
          device.name.c_str(), options.model.c_str(), name_of(precision), options.context,
          options.batch ? "batch" : "rows", n, t * 1e3, *std::ranges::min_element(seconds) * 1e3,
          *std::ranges::max_element(seconds) * 1e3, options.repeats, t / single, n / t,
          bytes / t / 1e9, bandwidth / 1e9);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace specquant

int main(int argc, char** argv) {
  specquant::Options options;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const bool value = i + 1 < argc;
      if (argument == "--context" && value) {
        options.context = std::atoi(argv[++i]);
      } else if (argument == "--repeats" && value) {
        options.repeats = std::max(1, std::atoi(argv[++i]));
      } else if (argument == "--batch") {
        options.batch = true;
      } else if (options.model.empty()) {
        options.model = argument;
      } else {
        options.precisions.push_back(specquant::parse_precision(argument));
      }
    }
    if (options.precisions.empty()) {
      std::fputs("Usage: cuda_bench MODEL PRECISION... [--context N] [--batch] [--repeats N]\n",
                 stderr);
      return 2;
    }
    specquant::bench(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
