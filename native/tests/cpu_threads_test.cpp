// The thread pool, and the bandwidth that its threads reach.
#include "cpu/threads.h"

#include <doctest/doctest.h>

#include <atomic>
#include <utility>
#include <vector>

#include "cpu/bandwidth.h"

namespace specquant::cpu {
namespace {

TEST_CASE("a team shares every piece once, and a barrier shows all writes") {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (const int total : {0, 1, 5, 36, 61, 192}) {
      for (const int grain : {1, 2, 16}) {
        std::vector<int> times(static_cast<std::size_t>(total), 0);
        std::vector<long> sums(static_cast<std::size_t>(threads), 0);
        pool.run([&](ThreadPool::Member& member) {
          for (int round = 1; round <= 3; ++round) {
            member.share(total, grain, [&](int begin, int end) {
              CHECK(begin % grain == 0);
              for (int i = begin; i < end; ++i) ++times[i];
            });
            member.barrier();
            for (const int count : times) sums[member.index()] += count;
            member.barrier();
          }
        });
        for (const int count : times) CHECK(count == 3);
        for (const long sum : sums) CHECK(sum == 6L * total);
      }
    }
  }
}

TEST_CASE("a thread that waits is not idle, and its own range is what it is given first") {
  ThreadPool pool(3);
  std::atomic<int> idled{0};
  std::vector<std::pair<int, int>> ranges(3);
  pool.run([&](ThreadPool::Member& member) {
    ranges[member.index()] = member.own_range(61, 4);
    // The first two wait until one of them has been idle.
    while (member.index() == 2 && idled == 0) {
    }
    member.barrier([&] { ++idled; });
  });
  CHECK(idled > 0);
  int next = 0;  // the ranges lie beside each other, in whole pieces
  for (const auto& [begin, end] : ranges) {
    CHECK(begin == next);
    CHECK(begin % 4 == 0);
    next = end;
  }
  CHECK(next == 61);
}

TEST_CASE("bandwidth is a rate that a machine can have") {
  ThreadPool pool(2);
  const double rate = measure_read_bandwidth(pool);
  CHECK(rate > 1e8);
  CHECK(rate < 1e14);
}

}  // namespace
}  // namespace specquant::cpu
