// Micro-benchmarks of the matrix products on two threads: weights streamed from memory (256 MiB,
// far beyond the caches) and weights that stay in the second-level cache (256 KiB, the arithmetic
// alone). Beside them the rate at which the same threads read the same bytes, and the time to pack
// one row.
//
//   kernels_bench --benchmark_filter='read_bandwidth|avx512/.*/cols:576' --benchmark_repetitions=5
//       --benchmark_enable_random_interleaving=true --benchmark_min_time=0.05
//
// A table of the best repetition of each ends the output: noise of other processes and of the
// memory's other users only adds time. T(n)/T(1) is against the same kernel at one row.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cpu/bandwidth.h"
#include "cpu/kernels.h"
#include "cpu/model_buffer.h"
#include "cpu/threads.h"

namespace specquant::cpu {
namespace {

constexpr std::size_t kWeightBytes = std::size_t{256} << 20;
constexpr int kThreads = 2;

// Halves that are small positive numbers as f16 and as bf16, and random as codes. In large pages,
// as the engine keeps its weights.
const std::byte* weight_bytes() {
  static const Buffer bytes = [] {
    Buffer buffer(kWeightBytes);
    std::mt19937 random(1);
    for (std::size_t at = 0; at < kWeightBytes; at += 2) {
      const auto half = static_cast<uint16_t>(0x2000U + random() % 0x1BFFU);
      std::memcpy(buffer.data() + at, &half, 2);
    }
    return buffer;
  }();
  return bytes.data();
}

// Seconds since the first iteration began, when all threads were ready.
class Stopwatch {
 public:
  void start_once() {
    if (!running_) start_ = std::chrono::steady_clock::now();
    running_ = true;
  }
  double seconds_each(int64_t iterations) const {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    return elapsed.count() / static_cast<double>(iterations);
  }

 private:
  bool running_ = false;
  std::chrono::steady_clock::time_point start_;
};

// The engine's own measure of the roofline.
void read_bandwidth(benchmark::State& state) {
  ThreadPool pool(kThreads);
  double rate = 0.0;
  for (auto _ : state) rate = measure_read_bandwidth(pool);
  state.counters["GB/s"] = rate / 1e9;
}

void product(benchmark::State& state, const KernelTable* table, WeightKind weights,
             ActivationKind activations) {
  const int rows = static_cast<int>(state.range(1));
  Matrix matrix{weights, 0, static_cast<int>(state.range(0)), 32, weight_bytes()};
  const std::size_t total = static_cast<std::size_t>(state.range(2)) << 10;
  const int tiles = static_cast<int>(total / matrix.tile_bytes());
  matrix.rows = tiles * kTileRows;

  std::vector<float> values(static_cast<std::size_t>(rows) * matrix.cols);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  PackedRows x;
  x.prepare(activations, rows, matrix.cols);
  table->pack(values.data(), static_cast<std::size_t>(matrix.cols), 0, rows, x);

  const int index = state.thread_index();
  // Each thread writes its own part, as large as one layer's output and used again and again.
  const int chunk = 96;
  std::vector<float> y(static_cast<std::size_t>(rows) * chunk * kTileRows);
  const int begin = tiles / kThreads * index;
  const int end = begin + tiles / kThreads;
  Stopwatch watch;
  for (auto _ : state) {
    watch.start_once();
    for (int tile = begin; tile < end; tile += chunk) {
      Matrix part = matrix;
      part.tiles += matrix.tile_bytes() * static_cast<std::size_t>(tile);
      const int count = std::min(chunk, end - tile);
      part.rows = count * kTileRows;
      table->matmul(part, x, 0, count, y.data(), static_cast<std::size_t>(chunk * kTileRows),
                    false);
    }
    benchmark::ClobberMemory();
  }
  if (index != 0) return;
  const double seconds = watch.seconds_each(state.iterations());
  const double tiles_read = tiles / kThreads * kThreads;
  const double bytes = tiles_read * static_cast<double>(matrix.tile_bytes());
  const double products = tiles_read * kTileRows * matrix.cols * rows;
  state.counters["GB/s"] = bytes / seconds / 1e9;
  state.counters["GMAC/s"] = products / seconds / 1e9;
}

void packing(benchmark::State& state, const KernelTable* table, ActivationKind activations) {
  const int cols = static_cast<int>(state.range(0));
  std::vector<float> values(static_cast<std::size_t>(cols));
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  PackedRows x;
  x.prepare(activations, 1, cols);
  for (auto _ : state) {
    table->pack(values.data(), static_cast<std::size_t>(cols), 0, 1, x);
    benchmark::ClobberMemory();
  }
}

void register_all() {
  benchmark::RegisterBenchmark("read_bandwidth", read_bandwidth)->Iterations(1)->UseRealTime();
  struct Pair {
    const char* name;
    WeightKind weights;
    ActivationKind activations;
  };
  const Pair pairs[] = {
      {"affine4_i8", WeightKind::affine4, ActivationKind::i8},  // w4a8, and w4a4
      {"affine4_i16", WeightKind::affine4, ActivationKind::i16},
      {"affine8_i8", WeightKind::affine8, ActivationKind::i8},
      {"affine8_i16", WeightKind::affine8, ActivationKind::i16},
      {"f16_f32", WeightKind::f16, ActivationKind::f32},
      {"bf16_bf16", WeightKind::bf16, ActivationKind::bf16},
  };
  const std::pair<const char*, ActivationKind> kinds[] = {{"f32", ActivationKind::f32},
                                                          {"bf16", ActivationKind::bf16},
                                                          {"i16", ActivationKind::i16},
                                                          {"i8", ActivationKind::i8},
                                                          {"u4", ActivationKind::u4}};
  for (const char* isa : {"avx512", "avx2", "scalar"}) {
    const KernelTable* table = kernels(std::string(isa));
    if (table == nullptr) continue;
    for (const Pair& pair : pairs) {
      const std::string name = std::string(isa) + "/" + pair.name;
      benchmark::RegisterBenchmark(name.c_str(), product, table, pair.weights, pair.activations)
          ->ArgNames({"cols", "rows", "KiB"})
          ->ArgsProduct({{576, 1536}, {1, 2, 4, 8, 16, 64}, {kWeightBytes >> 10}})
          ->ArgsProduct({{576}, {1, 2, 4, 8, 16, 64}, {256}})
          ->Threads(kThreads)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
    for (const auto& [name, kind] : kinds) {
      const std::string title = std::string(isa) + "/pack_" + name;
      benchmark::RegisterBenchmark(title.c_str(), packing, table, kind)->Arg(576);
    }
  }
}

// The console's output, then the table of the best repetitions.
class TableReporter : public benchmark::ConsoleReporter {
 public:
  TableReporter() : ConsoleReporter(OO_None) {}  // no colours in files

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      const auto gigabytes = run.counters.find("GB/s");
      if (gigabytes == run.counters.end()) continue;
      if (run.run_name.function_name == "read_bandwidth") {
        read_rate_ = std::max(read_rate_, gigabytes->second.value);
        continue;
      }
      const auto products = run.counters.find("GMAC/s");
      Rates& best = best_[run.run_name.function_name + " " + value_of(run.run_name.args, "KiB:") +
                          " KiB " + value_of(run.run_name.args, "cols:") +
                          " columns"][std::stoi(value_of(run.run_name.args, "rows:"))];
      best.gigabytes = std::max(best.gigabytes, gigabytes->second.value);
      best.products = std::max(best.products, products->second.value);
    }
  }

  void Finalize() override {
    std::printf("\nread rate %.1f GB/s\n%-44s %5s %7s %7s %10s %9s\n", read_rate_,
                "best of repetitions", "rows", "GB/s", "GMAC/s", "T(n)/T(1)", "of read");
    for (const auto& [kernel, by_rows] : best_) {
      const auto one = by_rows.find(1);
      for (const auto& [rows, rates] : by_rows) {
        const double ratio = one == by_rows.end() ? 0.0 : one->second.gigabytes / rates.gigabytes;
        std::printf("%-44s %5d %7.1f %7.1f %10.2f %9.2f\n", kernel.c_str(), rows, rates.gigabytes,
                    rates.products, ratio, read_rate_ > 0.0 ? rates.gigabytes / read_rate_ : 0.0);
      }
    }
  }

 private:
  struct Rates {
    double gigabytes = 0.0, products = 0.0;
  };

  // The number behind `name` in "cols:576/rows:1/KiB:256".
  static std::string value_of(const std::string& arguments, const std::string& name) {
    const std::size_t at = arguments.find(name) + name.size();
    return arguments.substr(at, arguments.find('/', at) - at);
  }

  double read_rate_ = 0.0;
  std::map<std::string, std::map<int, Rates>> best_;
};

}  // namespace
}  // namespace specquant::cpu

int main(int argc, char** argv) {
  specquant::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  specquant::cpu::TableReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  return 0;
}
