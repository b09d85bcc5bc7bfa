#include "core/fields.h"

#include <cmath>
#include <utility>

#include "core/errors.h"
#include "core/names.h"

namespace specquant::core {
namespace {

using nlohmann::json;

std::string number_text(double value) { return json(value).dump(); }

double number_of(const json& value, const std::string& path, double low, double high) {
  if (!value.is_number()) bad_request("'" + path + "' must be a number.");
  const auto number = value.get<double>();
  if (!(number >= low && number <= high)) {
    bad_request("'" + path + "' is " + number_text(number) + "; it must be " + number_text(low) +
                " to " + number_text(high) + ".");
  }
  return number;
}

bool is_integer_within(const json& value, int low, int high) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    return std::cmp_greater_equal(number, low) && std::cmp_less_equal(number, high);
  }
  return value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

const json& array_of(const json& value, const std::string& path) {
  if (!value.is_array()) bad_request("'" + path + "' must be a list.");
  return value;
}

std::string element(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

}  // namespace

void bad_request(const std::string& message) { throw Error(ErrorType::bad_request, message); }

int integer_of(const json& value, const std::string& path, int low, int high) {
  if (!value.is_number_integer()) bad_request("'" + path + "' must be an integer.");
  if (!is_integer_within(value, low, high)) {
    bad_request("'" + path + "' is " + value.dump() + "; it must be " + std::to_string(low) +
                " to " + std::to_string(high) + ".");
  }
  return value.get<int>();
}

std::vector<int> integers_of(const json& value, const std::string& path, int low, int high) {
  std::vector<int> list;
  list.reserve(array_of(value, path).size());
  for (const json& item : value) {
    // The path is put together only for the message: lists of tokens are long.
    if (!is_integer_within(item, low, high)) {
      integer_of(item, element(path, list.size()), low, high);
    }
    list.push_back(item.get<int>());
  }
  return list;
}

Fields::Fields(const json& value, const std::string& path) : value_(value), path_(path) {
  if (!value.is_object()) bad_request("'" + path + "' must be an object.");
}

std::string Fields::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

bool Fields::has(const std::string& key) {
  known_.insert(key);
  const auto found = value_.find(key);
  return found != value_.end() && !found->is_null();
}

const json& Fields::value(const std::string& key) {
  if (!has(key)) bad_request("'" + path_of(key) + "' is missing.");
  return *value_.find(key);
}

int Fields::integer(const std::string& key, int low, int high) {
  return integer_of(value(key), path_of(key), low, high);
}

uint64_t Fields::seed(const std::string& key) {
  const json& found = value(key);
  if (!found.is_number_unsigned() || found.get<uint64_t>() >> 63 != 0) {
    bad_request("'" + path_of(key) + "' must be an integer from 0 to 2^63 - 1.");
  }
  return found.get<uint64_t>();
}

double Fields::number(const std::string& key, double low, double high) {
  return number_of(value(key), path_of(key), low, high);
}

bool Fields::flag(const std::string& key) {
  const json& found = value(key);
  if (!found.is_boolean()) bad_request("'" + path_of(key) + "' must be true or false.");
  return found.get<bool>();
}

std::string Fields::text(const std::string& key) {
  const json& found = value(key);
  if (!found.is_string()) bad_request("'" + path_of(key) + "' must be a text.");
  return found.get<std::string>();
}

std::vector<std::string> Fields::texts(const std::string& key) {
  std::vector<std::string> list;
  const std::string path = path_of(key);
  for (const json& item : array_of(value(key), path)) {
    if (!item.is_string()) bad_request("'" + element(path, list.size()) + "' must be a text.");
    list.push_back(item.get<std::string>());
  }
  return list;
}

std::vector<int> Fields::integers(const std::string& key, int low, int high) {
  return integers_of(value(key), path_of(key), low, high);
}

std::vector<double> Fields::numbers(const std::string& key, double low, double high) {
  std::vector<double> list;
  const std::string path = path_of(key);
  for (const json& item : array_of(value(key), path)) {
    list.push_back(number_of(item, element(path, list.size()), low, high));
  }
  return list;
}

Fields Fields::object(const std::string& key) { return {value(key), path_of(key)}; }

void Fields::finish() const {
  for (const auto& [key, unused] : value_.items()) {
    if (known_.contains(key)) continue;
    const std::vector<std::string> names(known_.begin(), known_.end());
    bad_request((path_.empty() ? "The request" : "'" + path_ + "'") + " has the unknown key " +
                core::quoted(key) + ". " + suggestion(key, names));
  }
}

}  // namespace specquant::core
