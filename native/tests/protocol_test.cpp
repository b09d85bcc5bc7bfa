// The worker program from outside: lines, limits, ends, and a small model on the real processor.
#include <doctest/doctest.h>
#include <time.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "tests/child.h"
#include "tests/packed_builder.h"
#include "tests/temporary_file.h"

namespace specquant {
namespace {

using nlohmann::json;
using test::Child;
using test::TemporaryFile;

const std::string kWorker = SPECQUANT_WORKER;
const std::string kHello = "{\"id\": 1, \"call\": \"hello\"}\n";

json answer(Child& worker) { return json::parse(worker.line()); }

json ask(Child& worker, const json& request) {
  worker.send(request.dump() + "\n");
  return answer(worker);
}

// A packed file with random weights.
std::string small_model() {
  const cpu::reference::RandomModel model(cpu::reference::small_spec());
  return {reinterpret_cast<const char*>(model.bytes().data()), model.bytes().size()};
}

void check_alive(Child& worker) {
  worker.send(kHello);
  CHECK(answer(worker)["backend"] == "native");
}

TEST_CASE("the build in hello is the hash of the binary") {
  Child worker({kWorker});
  worker.send(kHello);
  std::ifstream file(kWorker, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const json hello = answer(worker);
  CHECK(hello["build"] == core::sha256_hex(std::as_bytes(std::span(bytes))));
  CHECK(hello["device"]["kind"] == "cpu");
}

TEST_CASE("several lines in one write are answered one by one, in order") {
  Child worker({kWorker});
  worker.send("{\"id\": 1, \"call\": \"hello\"}\nnonsense\n\n{\"id\": 2, \"call\": \"hello\"}\n");
  CHECK(answer(worker)["id"] == 1);
  CHECK(answer(worker)["error"]["type"] == "bad_request");
  CHECK(answer(worker)["id"].is_null());
  CHECK(answer(worker)["id"] == 2);
}

TEST_CASE("a line in pieces is one line") {
  Child worker({kWorker});
  for (const char c : kHello) worker.send(std::string(1, c));
  CHECK(answer(worker)["id"] == 1);
}

TEST_CASE("a line of 100 MB is skipped and the next is served") {
  Child worker({kWorker});
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 100; ++i) worker.send(piece);
  worker.send("\n");
  const json refused = answer(worker);
  CHECK(refused["error"]["type"] == "bad_request");
  CHECK(refused["id"].is_null());
  check_alive(worker);
}

TEST_CASE("the longest line is read, and one byte more is not") {
  const std::size_t limit = std::size_t{64} << 20;
  const std::string hello = kHello.substr(0, kHello.size() - 1);
  Child worker({kWorker});
  worker.send(hello + std::string(limit - hello.size(), ' ') + "\n");
  CHECK(answer(worker)["id"] == 1);
  worker.send(hello + std::string(limit - hello.size() + 1, ' ') + "\n");
  CHECK(answer(worker)["id"].is_null());
  check_alive(worker);
}

TEST_CASE("bytes that are no text are refused") {
  Child worker({kWorker});
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    if (i != '\n') bytes += static_cast<char>(i);
  }
  worker.send(bytes + "\n");
  CHECK(answer(worker)["error"]["type"] == "bad_request");
  worker.send(std::string(2000000, '[') + "\n");
  CHECK(answer(worker)["error"]["type"] == "bad_request");
  check_alive(worker);
}

TEST_CASE("the end of stdin is a clean exit") {
  Child at_once({kWorker});
  at_once.close_input();
  CHECK(at_once.wait() == 0);

  Child half({kWorker});
  half.send("{\"id\": 1, \"call\": \"hel");
  half.close_input();
  CHECK(answer(half)["error"]["type"] == "bad_request");
  CHECK(half.wait() == 0);

  Child without_newline({kWorker});
  without_newline.send(kHello.substr(0, kHello.size() - 1));
  without_newline.close_input();
  CHECK(answer(without_newline)["id"] == 1);
  CHECK(without_newline.wait() == 0);

  Child within_long_line({kWorker});
  for (int i = 0; i < 70; ++i) within_long_line.send(std::string(1 << 20, 'x'));
  within_long_line.close_input();
  CHECK(answer(within_long_line)["id"].is_null());
  CHECK(within_long_line.wait() == 0);
}

TEST_CASE("close ends the process, and so does a reader that is gone") {
  Child closed({kWorker});
  CHECK(ask(closed, {{"id", 3}, {"call", "close"}}) == json{{"id", 3}, {"closed", true}});
  CHECK(closed.wait() == 0);

  Child unread({kWorker});
  unread.close_output();
  unread.send(kHello);
  CHECK(unread.wait() == 1);
}

TEST_CASE("the command line") {
  Child help({kWorker, "--help"});
  CHECK(help.line().find("Usage") == 0);
  CHECK(help.wait() == 0);
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{kWorker, "--device", "gpu"},
                                             {kWorker, "--device"},
                                             {kWorker, "--threads", "0"},
                                             {kWorker, "--threads", "two"},
                                             {kWorker, "--threads", "2x"},
                                             {kWorker, "--thread", "2"}}) {
    Child refused(arguments);
    CHECK(refused.line().empty());
    CHECK(refused.wait() == 2);
  }
  Child one({kWorker, "--threads", "1", "--device", "cpu"});
  one.send(kHello);
  CHECK(answer(one)["device"]["threads"] == 1);
}

#ifndef SPECQUANT_CUDA
TEST_CASE("a device that this build lacks is refused with what mends it") {
  Child refused({"/bin/sh", "-c", "exec '" + kWorker + "' --device cuda 2>&1"});
  CHECK(refused.line() ==
        "specquant-worker: This worker was built without the device 'cuda'. Build it with 'make "
        "native-cuda', or use --device cpu.");
  CHECK(refused.wait() == 2);
}
#endif

TEST_CASE("on the processor, greedy speculation equals plain decoding") {
  const TemporaryFile model(small_model());
  Child worker({kWorker});
  const json loaded = ask(worker, {{"id", 1},
                                   {"call", "load"},
                                   {"model", {{"path", model.path()}}},
                                   {"precisions", {"fp16", "w4a16", "w4a8", "w4a4"}},
                                   {"max_context", 128},
                                   {"max_batch", 4}});
  INFO(loaded.dump());
  REQUIRE(loaded.contains("proof"));
  json prompts = json::array();
  for (int i = 0; i < 7; ++i) {
    json prompt = json::array();
    for (int j = 0; j <= 3 * i; ++j) prompt.push_back((7 * i + 11 * j) % 50);
    prompts.push_back(prompt);
  }
  const auto tokens = [&](const json& method, int batch_size) {
    const json done = ask(worker, {{"id", 2},
                                   {"call", "run"},
                                   {"method", method},
                                   {"prompts", prompts},
                                   {"batch_size", batch_size},
                                   {"max_new_tokens", {60, 1, 2, 40, 30, 60, 25}},
                                   {"stop_ids", {3}}});
    INFO(done.dump());
    REQUIRE(done.contains("requests"));
    json all = json::array();
    for (const json& request : done["requests"]) all.push_back(request["tokens"]);
    return all;
  };
  for (const char* precision : {"fp16", "w4a16", "w4a8", "w4a4"}) {
    const json plain = tokens({{"precision", precision}}, 1);
    for (const int batch_size : {1, 3, 4}) {
      CHECK(tokens({{"precision", precision}}, batch_size) == plain);
      for (const int gamma : {1, 3, 8}) {
        const json shape = {{"kind", "chain"}, {"gamma", gamma}};
        for (const json& drafter :
             {json{{"kind", "self"}, {"precision", "w4a4"}},
              json{{"kind", "self"}, {"precision", "w4a8"}}, json{{"kind", "ngram"}}}) {
          CHECK(tokens({{"precision", precision}, {"drafter", drafter}, {"shape", shape}},
                       batch_size) == plain);
        }
      }
    }
  }
}

TEST_CASE("an idle worker sleeps") {
  const TemporaryFile model(small_model());
  Child worker({kWorker});
  REQUIRE(ask(worker, {{"id", 1},
                       {"call", "load"},
                       {"model", {{"path", model.path()}}},
                       {"precisions", {"w4a8"}},
                       {"max_context", 64},
                       {"max_batch", 1}})
              .contains("proof"));
  REQUIRE(ask(worker, {{"id", 2},
                       {"call", "run"},
                       {"method", {{"precision", "w4a8"}}},
                       {"prompts", {{1, 2}}},
                       {"max_new_tokens", 20}})
              .contains("requests"));
  clockid_t clock{};
  REQUIRE(clock_getcpuclockid(worker.pid(), &clock) == 0);
  const auto used_ms = [&] {
    timespec used{};
    clock_gettime(clock, &used);
    return used.tv_sec * 1000 + used.tv_nsec / 1000000;
  };
  usleep(200000);
  const auto before = used_ms();
  usleep(500000);
  CHECK(used_ms() - before < 50);
}

}  // namespace
}  // namespace specquant
