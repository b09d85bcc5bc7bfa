// One forward of a few rows through a whole model on the processor, with all threads, as decoding
// and the verification of drafts run it.
//
//   forward_bench MODEL.sqm --benchmark_filter='w4a8/rows:[14]/' --benchmark_repetitions=5
//       --benchmark_enable_random_interleaving=true --benchmark_min_time=0.1
//
// Two builds are compared by running them in turns, as the rate of a shared machine's memory
// changes within minutes.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/packed_file.h"
#include "cpu/model.h"

namespace specquant::cpu {
namespace {

constexpr int kMaxContext = 1152;

void fill_cache(CpuModel& model, Precision precision, int length) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(length));
  for (int i = 0; i < length; ++i) tokens[i] = 7 + 31 * i % 1009;
  const Rows prompt{.slot = 0, .base = 0, .tokens = tokens};
  model.forward(precision, {&prompt, 1}, {.rows = LogitRows::none});
}

// `rows` new tokens of one sequence behind `context` tokens in the cache, greedy logits of each.
void forward(benchmark::State& state, CpuModel& model, Precision precision) {
  const auto rows = static_cast<std::size_t>(state.range(0));
  const int context = static_cast<int>(state.range(1));
  fill_cache(model, precision, context);
  std::vector<int32_t> tokens(rows);
  for (std::size_t i = 0; i < rows; ++i) tokens[i] = static_cast<int32_t>(11 + 17 * i);
  const Rows step{.slot = 0, .base = context, .tokens = tokens};
  for (auto _ : state) model.forward(precision, {&step, 1}, {.rows = LogitRows::all});
}

void register_all(CpuModel& model, const std::vector<std::pair<Precision, std::string>>& kinds) {
  for (const auto& [precision, name] : kinds) {
    benchmark::RegisterBenchmark(name.c_str(), forward, std::ref(model), precision)
        ->ArgNames({"rows", "context"})
        ->ArgsProduct({{1, 2, 4, 8, 16}, {128, 1024}})
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace specquant::cpu

int main(int argc, char** argv) {
  using specquant::Precision;
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "Give the path of a packed model (.sqm) before the options.\n");
    return 2;
  }
  try {
    const std::vector<std::pair<Precision, std::string>> kinds = {
        {Precision::w4a8, "w4a8"}, {Precision::w4a16, "w4a16"}, {Precision::fp16, "fp16"}};
    std::vector<Precision> precisions;
    for (const auto& kind : kinds) precisions.push_back(kind.first);
    const specquant::core::PackedFile file(argv[1]);
    auto pool = std::make_shared<specquant::cpu::ThreadPool>(specquant::cpu::available_cores());
    specquant::cpu::CpuModel model(file, precisions, 1, specquant::cpu::kMaxContext,
                                   std::move(pool), specquant::cpu::kernels());
    specquant::cpu::register_all(model, kinds);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  benchmark::Shutdown();
  return 0;
}
