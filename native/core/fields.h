// Typed reading of a JSON object from a request. Every failure is an Error of type `bad_request`
// that names the key by its path; keys that nobody asked for are refused by name.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace specquant::core {

class Fields {
 public:
  // `value` must outlive this object. `path` stands before the keys in messages; empty at the top.
  Fields(const nlohmann::json& value, const std::string& path);

  // Present and not null.
  bool has(const std::string& key);
  const nlohmann::json& value(const std::string& key);  // present and not null, or refused
  std::string path_of(const std::string& key) const;

  int integer(const std::string& key, int low, int high);
  uint64_t seed(const std::string& key);  // 0 to 2^63 - 1
  double number(const std::string& key, double low, double high);
  bool flag(const std::string& key);
  std::string text(const std::string& key);
  std::vector<std::string> texts(const std::string& key);
  std::vector<int> integers(const std::string& key, int low, int high);
  std::vector<double> numbers(const std::string& key, double low, double high);
  Fields object(const std::string& key);

  // Refuses the keys that were not asked for.
  void finish() const;

 private:
  const nlohmann::json& value_;
  std::string path_;
  std::set<std::string> known_;
};

// `path` stands in messages. The element itself is integer `low` to `high`.
int integer_of(const nlohmann::json& value, const std::string& path, int low, int high);
std::vector<int> integers_of(const nlohmann::json& value, const std::string& path, int low,
                             int high);

[[noreturn]] void bad_request(const std::string& message);

}  // namespace specquant::core
