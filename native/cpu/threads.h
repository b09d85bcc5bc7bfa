// A pool of persistent threads for the stages of a forward pass.
//
// Waiting threads spin for a few microseconds, then offer their core to others, then sleep: stages
// are microseconds long on a quiet machine, and on a crowded one spinning would starve the thread
// that is being waited for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace specquant::cpu {

// Cores that this process may use: its affinity mask and the CPU quota of its control group.
int available_cores();

class ThreadPool {
 public:
  // What a job sees of its team. Every thread of the team must pass the same barriers.
  class Member {
   public:
    int index() const { return index_; }
    int size() const { return pool_.size(); }

    // Waits for the whole team. Writes made before it are visible to all after it.
    void barrier() { pool_.wait_for_team(); }

    // Calls work(begin, end) until [0, total) has been handed out once to the team. A thread starts
    // with a range of its own, so that it reads one stream of memory; the rest is shared out in
    // pieces of `grain`, so that a thread which was interrupted holds nobody up. At most one use
    // between two barriers.
    template <typename Work>
    void share(int total, int grain, Work&& work);

   private:
    friend class ThreadPool;
    Member(ThreadPool& pool, int index) : pool_(pool), index_(index) {}
    ThreadPool& pool_;
    int index_;
  };
  using Job = std::function<void(Member&)>;

  // `threads` counts the calling thread; at least 1.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs `job` on every thread, the caller's included, and returns when all have finished.
  // The job must not throw. Call from one thread at a time.
  void run(const Job& job);

 private:
  // Each counter has a cache line of its own.
  struct alignas(64) Counter {
    std::atomic<int32_t> value{0};
  };

  void wait_for_team();
  void work(int index);
  static void wait_while(const std::atomic<int32_t>& value, int32_t old);

  Counter job_number_;  // rises when a job starts or the pool ends
  Counter arrived_;     // threads that wait at the barrier
  Counter phase_;       // rises when a barrier opens
  Counter next_;        // pieces handed out by share() since the last barrier
  const Job* job_ = nullptr;
  bool ending_ = false;
  std::vector<std::thread> workers_;
};

template <typename Work>
void ThreadPool::Member::share(int total, int grain, Work&& work) {
  // Three quarters are handed out in advance, in whole grains.
  const int grains = (total + grain - 1) / grain;
  const int own = grains * 3 / (4 * size());
  if (own > 0) work(own * index_ * grain, own * (index_ + 1) * grain);
  const int first = own * size();
  for (;;) {
    const int piece = first + pool_.next_.value.fetch_add(1, std::memory_order_relaxed);
    if (piece >= grains) return;
    const int end = (piece + 1) * grain;
    work(piece * grain, end < total ? end : total);
  }
}

}  // namespace specquant::cpu
