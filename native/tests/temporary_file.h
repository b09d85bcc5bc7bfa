// A file of a test's own that goes with the object.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace specquant::test {

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content = "") {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("specquant_test_" + std::to_string(getpid()) + "_" + std::to_string(count++)))
                .string();
    std::ofstream(path_, std::ios::binary) << content;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace specquant::test
