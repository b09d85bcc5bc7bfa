#include "core/packed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/json.h"

namespace specquant::core {
namespace {

using nlohmann::json;

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxHeaderBytes = 100U << 20;  // the limit of the safetensors format

std::string dimensions(int64_t rows, int64_t cols) {
  return std::to_string(rows) + " x " + std::to_string(cols);
}

void require_shape(const TensorView& view, const ExpectedTensor& wanted) {
  const bool kind_fits = wanted.vector ? view.kind == *wanted.vector : !is_vector(view.kind);
  if (kind_fits && view.rows == wanted.rows && view.cols == wanted.cols) return;
  throw std::invalid_argument("it is " + dimensions(view.rows, view.cols) + " of kind " +
                              name_of(view.kind) + " where the model needs " +
                              dimensions(wanted.rows, wanted.cols) +
                              (wanted.vector ? std::string(" of kind ") + name_of(*wanted.vector)
                                             : std::string(" of a matrix kind")));
}

}  // namespace

class PackedFile::Mapping {
 public:
  Mapping(void* address, std::size_t size) : address_(address), size_(size) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(address_, size_); }
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(address_), size_};
  }

 private:
  void* address_;
  std::size_t size_;
};

PackedFile::PackedFile(const std::string& path) : path_(path) {
  // A pipe must not keep us waiting for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail("it cannot be opened (" + std::string(std::strerror(errno)) + ").");
  struct stat status {};
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular || status.st_size == 0) {
    close(descriptor);
    fail(regular ? "it is empty." : "it is not a file.");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int map_error = errno;
  close(descriptor);
  if (address == MAP_FAILED) {
    fail("it cannot be mapped (" + std::string(std::strerror(map_error)) + ").");
  }
  mapping_ = std::make_unique<Mapping>(address, size);
  read(mapping_->bytes());
}

PackedFile::PackedFile(std::span<const std::byte> bytes, const std::string& name) : path_(name) {
  read(bytes);
}

PackedFile::~PackedFile() = default;

void PackedFile::fail(const std::string& what) const {
  throw Error(ErrorType::model, "Model file " + path_ + ": " + what);
}

void PackedFile::read(std::span<const std::byte> bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) fail("it is truncated: it has no header.");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes < 2 || header_bytes > kMaxHeaderBytes) {
    fail("its header length of " + std::to_string(header_bytes) +
         " bytes is absurd: it is not a packed model file.");
  }
  if (header_bytes > bytes.size() - sizeof(header_bytes)) {
    fail("it is truncated inside its header.");
  }
  const std::size_t data_start = sizeof(header_bytes) + header_bytes;
  if (data_start % kAlignment != 0) fail("its data does not start on a multiple of 64 bytes.");

  json header = parse_part(bytes.subspan(sizeof(header_bytes), header_bytes), "the header");
  const auto table = header.find("__metadata__");
  if (table == header.end() || !table->is_object() || !table->contains("specquant")) {
    fail(
        "it has no metadata entry 'specquant'. Pack the checkpoint with "
        "'python -m backends.pack'.");
  }
  const json text = (*table)["specquant"];
  if (!text.is_string()) fail("'specquant' is not a text.");
  header.erase("__metadata__");
  const json metadata = parse_part(std::as_bytes(std::span(text.get_ref<const std::string&>())),
                                   "the metadata entry 'specquant'");
  try {
    metadata_ = metadata_of(metadata);
    if (!field(metadata, "tensors").is_object()) {
      throw std::invalid_argument("'tensors' is not an object");
    }
  } catch (const std::invalid_argument& error) {
    fail(std::string(error.what()) + ".");
  }
  place_tensors(header, metadata["tensors"], bytes.subspan(data_start));
  check_draft_tokens();
  check_columns();
}

nlohmann::json PackedFile::parse_part(std::span<const std::byte> text, const char* part) const {
  try {
    json parsed = parse_json({reinterpret_cast<const char*>(text.data()), text.size()});
    if (!parsed.is_object()) throw std::invalid_argument("It is not an object.");
    return parsed;
  } catch (const std::invalid_argument& error) {
    fail(std::string("cannot read ") + part + ". " + error.what());
  }
}

std::vector<ExpectedTensor> PackedFile::wanted_tensors(const nlohmann::json& descriptions) const {
  try {
    return expected_tensors(metadata_, descriptions);
  } catch (const std::invalid_argument& error) {
    fail(std::string(error.what()) + ".");
  }
}

// Finds each tensor that the model asks for in the header and in the metadata, which must agree.
void PackedFile::place_tensors(const nlohmann::json& header, const nlohmann::json& descriptions,
                               std::span<const std::byte> data) {
  std::vector<std::pair<Extent, std::string>> extents;
  for (const ExpectedTensor& wanted : wanted_tensors(descriptions)) {
    try {
      if (!descriptions.contains(wanted.name)) {
        if (wanted.optional) continue;
        throw std::invalid_argument("it is missing");
      }
      TensorView view = described_tensor(wanted.name, descriptions[wanted.name]);
      require_shape(view, wanted);
      if (!header.contains(wanted.name)) throw std::invalid_argument("it has no data");
      const Extent extent = extent_of(header[wanted.name], view.kind, data.size());
      const int64_t needed = tensor_bytes(view.kind, view.rows, view.cols, view.group);
      if (extent.end - extent.begin != static_cast<uint64_t>(needed)) {
        throw std::invalid_argument("it has " + std::to_string(extent.end - extent.begin) +
                                    " bytes where its kind and shape need " +
                                    std::to_string(needed));
      }
      view.bytes = data.subspan(extent.begin, extent.end - extent.begin);
      tensors_.emplace(wanted.name, std::move(view));
      extents.emplace_back(extent, wanted.name);
    } catch (const std::invalid_argument& error) {
      fail("tensor '" + wanted.name + "': " + error.what() + ".");
    }
  }
  for (const json* table : {&header, &descriptions}) {
    for (const auto& [name, entry] : table->items()) {
      if (!tensors_.contains(name)) fail("tensor '" + name + "' does not belong to the model.");
    }
  }
  std::ranges::sort(extents, {}, [](const auto& entry) { return entry.first.begin; });
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].first.begin < extents[i - 1].first.end) {
      fail("tensors '" + extents[i - 1].second + "' and '" + extents[i].second + "' overlap.");
    }
  }
}

void PackedFile::check_draft_tokens() const {
  int32_t before = -1;
  for (const int32_t token : draft_tokens()) {
    if (token <= before || token >= shape().vocabulary) {
      fail("tensor 'draft_tokens': its tokens do not rise from 0 to below 'vocab_size'.");
    }
    before = token;
  }
}

void PackedFile::check_columns() const {
  for (const auto& [name, tensor] : tensors_) {
    if (!name.ends_with("_columns")) continue;
    std::vector<bool> seen(static_cast<std::size_t>(tensor.rows));
    for (const int32_t column : tensor.integers()) {
      if (column < 0 || column >= tensor.rows || seen[static_cast<std::size_t>(column)]) {
        fail("tensor '" + name + "': it does not name each column once.");
      }
      seen[static_cast<std::size_t>(column)] = true;
    }
  }
}

const TensorView* PackedFile::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const TensorView* PackedFile::find_in_layer(int layer, const std::string& part) const {
  return find("layers." + std::to_string(layer) + "." + part);
}

std::span<const int32_t> PackedFile::draft_tokens() const {
  const TensorView* tokens = find("draft_tokens");
  return tokens == nullptr ? std::span<const int32_t>{} : tokens->integers();
}

const TensorView& PackedFile::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail("tensor '" + name + "' is missing.");
  return found->second;
}

const TensorView& PackedFile::layer_tensor(int layer, const std::string& part) const {
  return tensor("layers." + std::to_string(layer) + "." + part);
}

}  // namespace specquant::core
