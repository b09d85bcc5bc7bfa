// The worker's command line.
#pragma once

#include <span>
#include <string>

namespace specquant::worker {

struct Options {
  std::string device = "cpu";
  int threads = 0;  // 0: one a core
  bool help = false;
};

// Throws std::invalid_argument with a sentence for the user.
Options parse_options(std::span<const char* const> arguments);
std::string help_text();

}  // namespace specquant::worker
