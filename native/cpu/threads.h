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
#include <utility>
#include <vector>

namespace specquant::cpu {

// Cores that this process may use: its affinity mask and the CPU quota of its control group.
int available_cores();

class ThreadPool {
 public:
  // What a job sees of its team. Every thread must pass the same barriers and uses of share().
  class Member {
   public:
    int index() const { return index_; }
    int size() const { return pool_.size(); }

    // Waits for the whole team. Writes made before it are visible to all after it.
    void barrier() {
      barrier([] {});
    }
    // Calls idle(), which must be short, again and again for the first microseconds of waiting.
    template <typename Idle>
    void barrier(Idle&& idle) {
      const int32_t phase = pool_.phase_.value.load(std::memory_order_relaxed);
      if (pool_.arrive(phase)) return;
      for (int i = 0; i < kSpins; ++i) {
        if (pool_.phase_.value.load(std::memory_order_acquire) != phase) return;
        idle();
        pause();
      }
      wait_longer(pool_.phase_.value, phase);
    }

    // Calls work(begin, end) for pieces of at most `grain` until [0, total) has been done once by
    // the team. Every thread has a range of its own, the same for every use with these numbers, so
    // that what it writes stays in its cache; one that is done takes pieces from the others'
    // ranges, so that a thread which was interrupted holds nobody up. At most one use between two
    // barriers.
    template <typename Work>
    void share(int total, int grain, Work&& work);

    // The range that share(total, grain) gives this thread.
    std::pair<int, int> own_range(int total, int grain) const {
      const Pieces own = pieces_of(index_, total, grain);
      const int end = (own.first + own.count) * grain;
      return {own.first * grain, end < total ? end : total};
    }

   private:
    struct Pieces {
      int first, count;
    };
    Pieces pieces_of(int owner, int total, int grain) const {
      const int pieces = (total + grain - 1) / grain;
      const int first = static_cast<int>(int64_t{pieces} * owner / size());
      return {first, static_cast<int>(int64_t{pieces} * (owner + 1) / size()) - first};
    }

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
  // Counters of different threads are on different cache lines.
  struct alignas(64) Counter {
    std::atomic<int32_t> value{0};
  };
  // How many pieces of a thread's range have been taken, for this and for the next use of share():
  // a thread clears its next one while nobody looks at it.
  struct alignas(64) Range {
    std::atomic<int32_t> taken[2]{};
    int use = 0;
  };

  // A pause takes about 15 ns on recent x86 processors, so spinning ends after some 10
  // microseconds.
  static constexpr int kSpins = 700;

  // Counts a thread in. True for the last one, which opens the barrier.
  bool arrive(int32_t phase);
  void work(int index);
  static void pause();
  static void wait_while(const std::atomic<int32_t>& value, int32_t old);
  // Offers the core to others, then sleeps, until the value changes.
  static void wait_longer(const std::atomic<int32_t>& value, int32_t old);

  Counter job_number_;         // rises when a job starts or the pool ends
  Counter arrived_;            // threads that wait at the barrier
  Counter phase_;              // rises when a barrier opens
  std::vector<Range> ranges_;  // one a thread
  const Job* job_ = nullptr;
  bool ending_ = false;
  std::vector<std::thread> workers_;
};

template <typename Work>
void ThreadPool::Member::share(int total, int grain, Work&& work) {
  Range& own = pool_.ranges_[static_cast<std::size_t>(index_)];
  const int use = own.use;
  own.use = 1 - use;
  own.taken[1 - use].store(0, std::memory_order_relaxed);
  const int team = size();
  for (int i = 0; i < team; ++i) {
    const int owner = (index_ + i) % team;
    const auto [first, count] = pieces_of(owner, total, grain);
    std::atomic<int32_t>& taken = pool_.ranges_[static_cast<std::size_t>(owner)].taken[use];
    // Looking before taking leaves the line with its owner where nothing is left.
    while (taken.load(std::memory_order_relaxed) < count) {
      const int piece = taken.fetch_add(1, std::memory_order_relaxed);
      if (piece >= count) break;
      const int begin = (first + piece) * grain;
      work(begin, begin + grain < total ? begin + grain : total);
    }
  }
}

}  // namespace specquant::cpu
