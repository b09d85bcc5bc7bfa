// The one clock of all timings: monotonic, read in seconds from the start of a call.
#pragma once

#include <chrono>
#include <thread>

namespace specquant::core {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  // Sleeps until `seconds` after the start; returns at once where that has passed.
  void sleep_until(double seconds) const {
    std::this_thread::sleep_until(start_ +
                                  std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                      std::chrono::duration<double>(seconds)));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace specquant::core
