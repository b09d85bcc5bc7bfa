#include "core/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace specquant::core {

LineReader::LineReader(int descriptor, std::size_t max_bytes)
    : descriptor_(descriptor), max_bytes_(max_bytes), buffer_(std::size_t{1} << 16) {}

bool LineReader::refill() {
  ssize_t count = 0;
  do {
    count = read(descriptor_, buffer_.data(), buffer_.size());
  } while (count < 0 && errno == EINTR);
  begin_ = 0;
  end_ = count > 0 ? static_cast<std::size_t>(count) : 0;
  return count > 0;
}

LineReader::Result LineReader::next(std::string& line) {
  line.clear();
  bool too_long = false;
  bool anything = false;
  while (begin_ < end_ || refill()) {
    anything = true;
    const char* start = buffer_.data() + begin_;
    const auto* newline = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
    const std::size_t count =
        newline != nullptr ? static_cast<std::size_t>(newline - start) : end_ - begin_;
    begin_ += count + (newline != nullptr ? 1 : 0);
    if (line.size() + count > max_bytes_) {
      too_long = true;
      std::string().swap(line);
    }
    if (!too_long) line.append(start, count);
    if (newline != nullptr) return too_long ? Result::too_long : Result::line;
  }
  if (!anything) return Result::end;
  return too_long ? Result::too_long : Result::line;
}

}  // namespace specquant::core
