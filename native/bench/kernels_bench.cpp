// Micro-benchmarks of the matrix products on two threads: weights streamed from memory (256 MiB,
// far beyond the caches) and weights that stay in the second-level cache (256 KiB, the arithmetic
// alone). Beside them the rate at which the same threads read the same bytes, and the time to pack
// one row.
//
//   kernels_bench --benchmark_filter='read|avx512/.*/cols:576'
//
// Counters: GB/s of weights, GMAC/s, T(n)/T(1) against the same kernel at one row (run before it),
// and the share of the read rate. Alone on the machine; figures of a busy one mean nothing.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/model_buffer.h"

namespace specquant::cpu {
namespace {

constexpr std::size_t kWeightBytes = std::size_t{256} << 20;
constexpr int kThreads = 2;

// Halves that are small positive numbers as f16 and as bf16, and random as codes. In large pages,
// as the engine keeps its weights.
const std::byte* weight_bytes() {
  static const Buffer bytes = [] {
    Buffer buffer(kWeightBytes);
    auto* halves = reinterpret_cast<uint16_t*>(buffer.data());
    std::mt19937 random(1);
    for (std::size_t i = 0; i < kWeightBytes / 2; ++i) {
      halves[i] = static_cast<uint16_t>(0x2000U + random() % 0x1BFFU);
    }
    return buffer;
  }();
  return bytes.data();
}

double& read_rate() {
  static double rate = 0.0;
  return rate;
}

// Seconds an iteration took, on the first thread.
class Stopwatch {
 public:
  double seconds_each(int64_t iterations) const {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    return elapsed.count() / static_cast<double>(iterations);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void read_bandwidth(benchmark::State& state) {
  const std::size_t share = kWeightBytes / kThreads;
  const std::byte* begin = weight_bytes() + share * static_cast<std::size_t>(state.thread_index());
  const Stopwatch watch;
  for (auto _ : state) {
    uint64_t sums[64] = {};
    for (std::size_t at = 0; at < share; at += sizeof sums) {
      uint64_t words[64];
      std::memcpy(words, begin + at, sizeof words);
      for (int i = 0; i < 64; ++i) sums[i] += words[i];
    }
    benchmark::DoNotOptimize(sums);
  }
  if (state.thread_index() != 0) return;
  read_rate() = static_cast<double>(kWeightBytes) / watch.seconds_each(state.iterations()) / 1e9;
  state.counters["GB/s"] = read_rate();
}

void product(benchmark::State& state, const KernelTable* table, WeightKind weights,
             ActivationKind activations, const std::string& name) {
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
  const Stopwatch watch;
  for (auto _ : state) {
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
  static std::map<std::string, double> one_row;
  const std::string key = name + std::to_string(matrix.cols) + "/" + std::to_string(total);
  if (rows == 1) one_row[key] = seconds;
  state.counters["GB/s"] = bytes / seconds / 1e9;
  state.counters["GMAC/s"] = products / seconds / 1e9;
  if (one_row.contains(key)) state.counters["T(n)/T(1)"] = seconds / one_row[key];
  if (read_rate() > 0.0 && total == kWeightBytes)
    state.counters["of_read"] = bytes / seconds / 1e9 / read_rate();
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
  benchmark::RegisterBenchmark("read_bandwidth", read_bandwidth)
      ->Threads(kThreads)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
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
      benchmark::RegisterBenchmark(name.c_str(), product, table, pair.weights, pair.activations,
                                   name)
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

}  // namespace
}  // namespace specquant::cpu

int main(int argc, char** argv) {
  specquant::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
