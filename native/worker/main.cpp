// The native worker process: JSON lines in, JSON lines out (docs/protocol.md).
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "core/line_reader.h"
#include "worker/hardware.h"
#include "worker/options.h"
#include "worker/worker.h"

namespace specquant::worker {
namespace {

constexpr int kUsageError = 2;

// False where nobody reads any more.
bool write_line(std::string text) {
  text += '\n';
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

int serve(Hardware& hardware) {
  // A harness that was killed must not leave a worker that finishes its run beside the next one.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Worker worker(hardware);
  core::LineReader reader(STDIN_FILENO, kMaxLineBytes);
  while (!worker.closed()) {
    std::string line;
    const core::LineReader::Result result = reader.next(line);
    if (result == core::LineReader::Result::end) return 0;
    const std::string answer = result == core::LineReader::Result::too_long
                                   ? Worker::answer_to_long_line()
                                   : worker.answer(line);
    if (!write_line(answer)) {
      std::fputs("specquant-worker: nobody reads the answers; ending.\n", stderr);
      return 1;
    }
  }
  return 0;
}

int run(std::span<const char* const> arguments) {
  std::unique_ptr<Hardware> hardware;
  try {
    const Options options = parse_options(arguments);
    if (options.help) {
      std::fputs(help_text().c_str(), stdout);
      return 0;
    }
    hardware = make_hardware(options.device, options.threads);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "specquant-worker: %s\n", error.what());
    return kUsageError;
  }
  return serve(*hardware);
}

}  // namespace
}  // namespace specquant::worker

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return specquant::worker::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "specquant-worker: %s\n", error.what());
    return 1;
  }
}
