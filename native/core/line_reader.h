// Lines from a file descriptor, with a limit on their length.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace specquant::core {

class LineReader {
 public:
  enum class Result { line, too_long, end };

  LineReader(int descriptor, std::size_t max_bytes);

  // Blocks until a whole line is there, puts it without its newline into `line`, and returns
  // `line`. A longer line than max_bytes is skipped to its end without being held. A last line that
  // has no newline counts as a line.
  Result next(std::string& line);

 private:
  int descriptor_;
  std::size_t max_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread part of buffer_
  bool refill();
};

}  // namespace specquant::core
