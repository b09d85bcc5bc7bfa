// libFuzzer: the reader of packed files takes any bytes or refuses them with a typed error.
//
// The first byte chooses: the rest is a file as it is, or, so that mutations reach beyond the first
// checks, the metadata and the tensor table as JSON texts that are put together with sound framing.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/errors.h"
#include "core/packed_file.h"
#include "tests/packed_parts.h"

namespace {

using specquant::test::PackedParts;

std::string file_of(std::string_view input) {
  if (input.empty()) return {};
  const bool framed = (input[0] & 1) != 0;
  input.remove_prefix(1);
  if (!framed) return std::string(input);
  const std::size_t split = input.find('\0');
  const std::string metadata(input.substr(0, split));
  std::string tensors(split == std::string_view::npos ? "{}" : input.substr(split + 1));
  const std::size_t brace = tensors.rfind('}');
  if (brace != std::string::npos) {
    tensors.insert(brace, (brace > 1 ? "," : "") + std::string("\"__metadata__\":{\"specquant\":") +
                              nlohmann::json(metadata).dump(
                                  -1, ' ', false, nlohmann::json::error_handler_t::replace) +
                              "}");
  }
  static const PackedParts valid;
  return PackedParts::with_header(tensors, valid.data);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const specquant::test::AlignedBytes bytes(file_of({reinterpret_cast<const char*>(data), size}));
  try {
    const specquant::core::PackedFile file(bytes.view(), "fuzz");
    // Every byte of every view must be readable.
    unsigned sum = 0;
    for (const auto& [name, view] : file.tensors()) {
      for (const std::byte byte : view.bytes) sum += std::to_integer<unsigned>(byte);
    }
    volatile unsigned used = sum;
    (void)used;
  } catch (const specquant::core::Error& error) {
    if (error.type() != specquant::core::ErrorType::model) __builtin_trap();
  }
  return 0;
}
