// How much of a speculative round is the device's work: rounds of a synthetic model that drafts
// with its own weights at another precision, by the host's clock and by the device's. Every drafted
// token is accepted by replay. One JSON object a line.
//
//   cuda_round_bench MODEL PRECISION DRAFT_PRECISION GAMMA [--batch N] [--rounds N]
//
// Uploads, the embedding and everything on the host count as host time, so that its share is an
// upper bound of the time in which the device has no work.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/model.h"
#include "decode/decoder.h"
#include "decode/replay.h"
#include "decode/self_drafter.h"

namespace specquant {
namespace {

constexpr int kPromptTokens = 128;

struct Options {
  std::string model;
  Precision precision{}, draft{};
  int gamma = 3, batch = 1, rounds = 40;
};

double total(const std::vector<double>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

void bench(const Options& options) {
  const core::SyntheticModel synthetic{options.model, cuda::synthetic_shape(options.model), 1};
  const Precision precisions[] = {options.precision, options.draft};
  const int new_tokens = 1 + options.rounds * (options.gamma + 1);
  const auto model = cuda::make_cuda_model(synthetic, precisions, options.batch,
                                           kPromptTokens + new_tokens + options.gamma + 1);
  decode::SelfDrafter drafter(*model, options.draft);
  decode::ReplayProfile profile;
  profile.accepted.assign(options.gamma + 1, 0.0);
  profile.accepted.back() = 1.0;
  decode::ReplayAcceptance acceptance(profile, 1);
  decode::PrefillCache prefill;
  decode::Shape shape;
  shape.depth = shape.nodes = options.gamma;
  decode::Job job;
  job.batch_size = options.batch;
  for (int slot = 0; slot < options.batch; ++slot) {
    std::vector<int32_t>& prompt = job.prompts.emplace_back();
    for (int i = 0; i < kPromptTokens; ++i) prompt.push_back((i * 7919 + slot * 31 + 17) % 32000);
  }
  const auto run = [&](int tokens) {
    job.max_new_tokens.assign(job.prompts.size(), tokens);
    return decode::decode({.model = *model,
                           .precision = options.precision,
                           .shape = shape,
                           .drafter = &drafter,
                           .acceptance = acceptance,
                           .prefill_cache = &prefill},
                          job);
  };
  // Prompts are held from here on, so that what is timed are rounds alone.
  run(1 + 3 * (options.gamma + 1));
  const double before = cuda::device_seconds(*model);
  const decode::RunResult result = run(new_tokens);
  const double device = cuda::device_seconds(*model) - before;
  const auto& rounds = result.rounds;
  const double count = static_cast<double>(rounds.start_s.size());
  const double other = total(rounds.other_s);
  const double wall = total(rounds.draft_s) + total(rounds.verify_s) + other;
  std::printf(
      "{\"device\": \"%s\", \"model\": \"%s\", \"precision\": \"%s\", \"drafter\": \"self(%s)\", "
      "\"gamma\": %d, \"batch\": %d, \"rounds\": %.0f, \"round_ms\": %.4f, \"device_ms\": %.4f, "
      "\"bookkeeping_ms\": %.4f, \"host_share\": %.5f}\n",
      cuda::describe_device().name.c_str(), options.model.c_str(), name_of(options.precision),
      name_of(options.draft), options.gamma, options.batch, count, wall / count * 1e3,
      device / count * 1e3, other / count * 1e3, 1.0 - device / wall);
}

}  // namespace
}  // namespace specquant

int main(int argc, char** argv) {
  specquant::Options options;
  std::vector<std::string> given;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const bool value = i + 1 < argc;
      if (argument == "--batch" && value) {
        options.batch = std::max(1, std::atoi(argv[++i]));
      } else if (argument == "--rounds" && value) {
        options.rounds = std::max(1, std::atoi(argv[++i]));
      } else {
        given.push_back(argument);
      }
    }
    if (given.size() != 4) {
      std::fputs(
          "Usage: cuda_round_bench MODEL PRECISION DRAFT_PRECISION GAMMA [--batch N] "
          "[--rounds N]\n",
          stderr);
      return 2;
    }
    options.model = given[0];
    options.precision = specquant::parse_precision(given[1]);
    options.draft = specquant::parse_precision(given[2]);
    options.gamma = std::max(1, std::atoi(given[3].c_str()));
    specquant::bench(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_round_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
