#include "worker/options.h"

#include <charconv>
#include <stdexcept>
#include <vector>

#include "core/names.h"
#include "worker/hardware.h"

namespace specquant::worker {
namespace {

constexpr int kMaxThreads = 1024;

int parse_threads(const std::string& text) {
  int threads = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, threads);
  if (error != std::errc() || stop != end || threads < 1 || threads > kMaxThreads) {
    throw std::invalid_argument("--threads must be a number from 1 to " +
                                std::to_string(kMaxThreads) + ", not " + core::quoted(text) + ".");
  }
  return threads;
}

}  // namespace

Options parse_options(std::span<const char* const> arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument = arguments[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == arguments.size()) throw std::invalid_argument(argument + " needs a value.");
      return arguments[++i];
    };
    if (argument == "--help" || argument == "-h") {
      options.help = true;
    } else if (argument == "--threads") {
      options.threads = parse_threads(value());
    } else if (argument == "--device") {
      options.device = value();
    } else {
      const std::vector<std::string> known{"--help", "--threads", "--device"};
      throw std::invalid_argument("Unknown option " + core::quoted(argument) + ". " +
                                  core::suggestion(argument, known));
    }
  }
  return options;
}

std::string help_text() {
  return "Usage: specquant-worker [--threads N] [--device NAME]\n"
         "\n"
         "Decodes with a packed model. Reads requests as JSON lines from stdin and answers one "
         "line\n"
         "each on stdout, as docs/protocol.md describes; logs go to stderr. It writes no files "
         "but\n"
         "token traces that a request asks for.\n"
         "\n"
         "  --threads N    threads of a forward pass (default: one for each core of this process)\n"
         "  --device NAME  where the model runs; in this build: " +
         core::list_of(hardware_names()) +
         " (default: 'cpu')\n"
         "  --help         this text\n"
         "\n"
         "Try it:  echo '{\"id\": 1, \"call\": \"hello\"}' | specquant-worker\n";
}

}  // namespace specquant::worker
