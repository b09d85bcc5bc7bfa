// libFuzzer: any line is answered with JSON, and any request is read or refused with a typed error.
#include <cstdint>
#include <string_view>

#include "core/errors.h"
#include "core/json.h"
#include "tests/fake_hardware.h"
#include "worker/requests.h"
#include "worker/worker.h"

namespace {

using specquant::core::Error;
using specquant::core::Fields;
using namespace specquant::worker;

// Reads a request as each of the calls that have keys.
void parse_as_each(const nlohmann::json& request, const Hardware& hardware) {
  const Limits limits{.precisions = {specquant::Precision::fp16, specquant::Precision::w4a4},
                      .drafters = {{"d", {specquant::Precision::w4a4}, false, ""},
                                   {"h", {specquant::Precision::w4a4}, true, "target"}},
                      .max_context = 64,
                      .max_batch = 4,
                      .vocabulary = 50};
  const auto tried = [&](const auto& parse) {
    try {
      Fields fields(request, "");
      fields.has("id");
      fields.has("call");
      parse(fields);
    } catch (const Error&) {
      return;
    }
  };
  tried([&](Fields& fields) { parse_load(fields, hardware); });
  tried([&](Fields& fields) { parse_forward(fields, limits); });
  tried([&](Fields& fields) { parse_score(fields, limits); });
  tried([&](Fields& fields) {
    const RunRequest run = parse_run(fields, limits);
    for (std::size_t i = 0; i < run.job.prompts.size(); ++i) {
      const auto length = static_cast<int>(run.job.prompts[i].size());
      if (length < 1 || length + run.job.max_new_tokens[i] > limits.max_context) __builtin_trap();
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  static specquant::test::FakeHardware hardware;
  // Without a model, a request that asks for a file to be written is refused before it is.
  Worker worker(hardware);
  const nlohmann::json answer = nlohmann::json::parse(worker.answer(line));
  if (!answer.contains("id")) __builtin_trap();
  if (answer.contains("error") && answer["error"]["type"] == "internal") __builtin_trap();
  try {
    parse_as_each(specquant::core::parse_json(line), hardware);
  } catch (const std::invalid_argument&) {
    return 0;
  } catch (const Error&) {
    return 0;
  }
  return 0;
}
