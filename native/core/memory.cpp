#include "core/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace specquant::core {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// What the control group of this process still allows (version 2, then 1), or kUnlimited.
int64_t group_allowance() {
  for (const auto& [limit_path, used_path] :
       {std::pair{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        std::pair{"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                  "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    int64_t limit = 0;
    int64_t used = 0;
    // Not a number ("max") means without a limit.
    if (std::ifstream(limit_path) >> limit && std::ifstream(used_path) >> used) {
      return std::max<int64_t>(0, limit - used);
    }
  }
  return kUnlimited;
}

}  // namespace

int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  int64_t available = kUnlimited;
  for (std::string key, rest; file >> key; std::getline(file, rest)) {
    if (key != "MemAvailable:") continue;
    file >> available;
    available *= 1024;
  }
  return std::min(available, group_allowance());
}

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f GB", bytes / 1e9);
  return text;
}

}  // namespace specquant::core
