#include "cpu/threads.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace specquant::cpu {
namespace {

constexpr int kYields = 20;

// CPU quota of the control group in cores, rounded up, or a large number where there is none.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0.0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0.0) return 1 << 16;
  const double cores = std::strtod(quota.c_str(), nullptr) / period;
  return std::max(1, static_cast<int>(cores + 0.999));
}

}  // namespace

int available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  return std::max(1, std::min(CPU_COUNT(&mask), quota_cores()));
}

ThreadPool::ThreadPool(int threads) : ranges_(static_cast<std::size_t>(std::max(1, threads))) {
  workers_.reserve(static_cast<std::size_t>(std::max(0, threads - 1)));
  for (int index = 1; index < threads; ++index) {
    workers_.emplace_back([this, index] { work(index); });
  }
}

ThreadPool::~ThreadPool() {
  ending_ = true;
  job_number_.value.fetch_add(1, std::memory_order_release);
  job_number_.value.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Job& job) {
  job_ = &job;
  job_number_.value.fetch_add(1, std::memory_order_release);
  job_number_.value.notify_all();
  Member caller(*this, 0);
  job(caller);
  caller.barrier();
}

void ThreadPool::work(int index) {
  Member member(*this, index);
  for (int32_t seen = 0;;) {
    wait_while(job_number_.value, seen);
    // Jobs do not overlap, so exactly one has started since.
    ++seen;
    if (ending_) return;
    (*job_)(member);
    member.barrier();
  }
}

bool ThreadPool::arrive(int32_t phase) {
  if (arrived_.value.fetch_add(1, std::memory_order_acq_rel) + 1 != size()) return false;
  arrived_.value.store(0, std::memory_order_relaxed);
  phase_.value.store(phase + 1, std::memory_order_release);
  phase_.value.notify_all();
  return true;
}

void ThreadPool::pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

void ThreadPool::wait_while(const std::atomic<int32_t>& value, int32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  wait_longer(value, old);
}

void ThreadPool::wait_longer(const std::atomic<int32_t>& value, int32_t old) {
  for (int i = 0; i < kYields; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    sched_yield();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace specquant::cpu
