// The worker: answers requests of docs/protocol.md, one line each.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/fields.h"
#include "decode/prefill.h"
#include "worker/hardware.h"
#include "worker/loaded_model.h"
#include "worker/requests.h"

namespace specquant::worker {

constexpr int kProtocolVersion = 1;
constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;

class Worker {
 public:
  explicit Worker(Hardware& hardware) : hardware_(hardware) {}

  // The answer to one line, without a newline. Never throws for what a line says: every failure is
  // an error answer, and the worker stays as it was. Throws core::Error where the device is lost:
  // a worker that lived on would fail at every request after it.
  std::string answer(std::string_view line);
  // The answer to a line that was longer than kMaxLineBytes.
  static std::string answer_to_long_line();
  bool closed() const { return closed_; }

 private:
  using Json = nlohmann::json;
  struct Loaded {
    LoadRequest request;
    std::vector<std::unique_ptr<LoadedModel>> models;  // the target first
    decode::PrefillCache prefill;
    Limits limits;

    Loaded() = default;
    Loaded(const Loaded&) = delete;
    Loaded& operator=(const Loaded&) = delete;
    ~Loaded() { take_off(); }  // a head's device reads its target's file

    void take_off();
    LoadedModel& target() const { return *models[0]; }
    LoadedModel& find(const std::string& id) const;
  };
  struct Call {
    const char* name;
    Json (Worker::*handle)(core::Fields&);
  };
  static const Call kCalls[];

  Json dispatch(const Json& request);
  Json hello(core::Fields& fields);
  Json load(core::Fields& fields);
  Json run(core::Fields& fields);
  Json forward(core::Fields& fields);
  Json score(core::Fields& fields);
  Json close(core::Fields& fields);
  Loaded& loaded();
  void put_on_device(Loaded& loaded);

  Hardware& hardware_;
  std::unique_ptr<Loaded> loaded_;
  std::string build_;  // hash of the binary, once asked for
  bool closed_ = false;
};

}  // namespace specquant::worker
