// A worker process under test, with a deadline on everything that it is waited for.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace specquant::test {

class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    int input[2];
    int output[2];
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) {
      throw std::runtime_error("no pipe");
    }
    pid_ = fork();
    if (pid_ == 0) {
      dup2(input[0], STDIN_FILENO);
      dup2(output[1], STDOUT_FILENO);
      std::vector<char*> pointers;
      for (std::string& argument : arguments) pointers.push_back(argument.data());
      pointers.push_back(nullptr);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
    close(input[0]);
    close(output[1]);
    input_ = input[1];
    output_ = output[0];
    signal(SIGPIPE, SIG_IGN);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    close_input();
    close_output();
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  void send(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t count = write(input_, text.data() + done, text.size() - done);
      if (count <= 0) throw std::runtime_error("the worker does not read");
      done += static_cast<std::size_t>(count);
    }
  }
  void close_input() {
    if (input_ >= 0) close(input_);
    input_ = -1;
  }
  void close_output() {
    if (output_ >= 0) close(output_);
    output_ = -1;
  }

  // The next line without its newline, or "" at the end.
  std::string line() {
    while (received_.find('\n') == std::string::npos) {
      char buffer[65536];
      pollfd ready{output_, POLLIN, 0};
      if (poll(&ready, 1, kDeadlineMs) != 1) throw std::runtime_error("the worker does not answer");
      const ssize_t count = read(output_, buffer, sizeof buffer);
      if (count <= 0) return "";
      received_.append(buffer, static_cast<std::size_t>(count));
    }
    const std::size_t end = received_.find('\n');
    const std::string first = received_.substr(0, end);
    received_.erase(0, end + 1);
    return first;
  }

  // Waits for the end: the exit status, or minus the signal.
  int wait() {
    for (int waited = 0; waited < kDeadlineMs; waited += 10) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      }
      usleep(10000);
    }
    throw std::runtime_error("the worker does not end");
  }
  int pid() const { return pid_; }

 private:
  static constexpr int kDeadlineMs = 120000;
  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
  std::string received_;
};

}  // namespace specquant::test
