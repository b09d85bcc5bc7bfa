// The device's own clock around the work of passes.
#pragma once

#include "cuda/memory.h"

namespace specquant::cuda {

class DeviceTime {
 public:
  DeviceTime() {
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), kWhat);
  }
  ~DeviceTime() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  DeviceTime(const DeviceTime&) = delete;
  DeviceTime& operator=(const DeviceTime&) = delete;

  // What follows in the stream is counted, until `end`.
  void begin(cudaStream_t stream) { check(cudaEventRecord(events_[0], stream), kWhat); }
  void end(cudaStream_t stream) { check(cudaEventRecord(events_[1], stream), kWhat); }
  // Adds what lies between the two; both have passed.
  void add() {
    float ms = 0.0F;
    check(cudaEventElapsedTime(&ms, events_[0], events_[1]), kWhat);
    seconds_ += static_cast<double>(ms) * 1e-3;
  }
  double seconds() const { return seconds_; }

 private:
  static constexpr const char* kWhat = "timing a pass";
  cudaEvent_t events_[2] = {};
  double seconds_ = 0.0;
};

}  // namespace specquant::cuda
