#include "cpu/bandwidth.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>

#include "cpu/model_buffer.h"

namespace specquant::cpu {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} << 20;
constexpr int kPieces = 1024;
constexpr int kPasses = 5;

// Independent sums keep enough loads in flight; the compiler makes vectors of them.
uint64_t read_all(const uint64_t* words, std::size_t count) {
  std::array<uint64_t, 16> sums{};
  for (std::size_t i = 0; i < count; i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += words[i + lane];
  }
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

}  // namespace

double measure_read_bandwidth(ThreadPool& pool) {
  Buffer buffer(kBufferBytes);
  auto* words = reinterpret_cast<uint64_t*>(buffer.data());
  constexpr std::size_t kWords = kBufferBytes / sizeof(uint64_t);
  std::fill(words, words + kWords, uint64_t{1});  // untouched pages would all be the zero page

  std::array<double, kPasses> rates{};
  std::atomic<uint64_t> total{0};
  for (double& rate : rates) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](ThreadPool::Member& member) {
      member.share(kPieces, 1, [&](int begin, int end) {
        constexpr std::size_t kPerPiece = kWords / kPieces;
        total += read_all(words + static_cast<std::size_t>(begin) * kPerPiece,
                          static_cast<std::size_t>(end - begin) * kPerPiece);
      });
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    rate = static_cast<double>(kBufferBytes) / elapsed.count();
  }
  std::ranges::sort(rates);
  // The sums are used, so that the reads cannot be left out.
  return total.load() == kPasses * kWords ? rates[kPasses / 2] : 0.0;
}

}  // namespace specquant::cpu
