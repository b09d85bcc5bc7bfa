#include "core/packed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "core/json.h"

namespace specquant::core {
namespace {

using nlohmann::json;

constexpr int kTileRows = 16;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxHeaderBytes = 100U << 20;  // the limit of the safetensors format
constexpr int kMaxDimension = 1 << 24;               // keeps every product below 2^63
constexpr int kMaxLayers = 4096;

constexpr std::array kKinds{TensorKind::affine4, TensorKind::affine8, TensorKind::f16,
                            TensorKind::bf16, TensorKind::f32};

bool has_groups(TensorKind kind) {
  return kind == TensorKind::affine4 || kind == TensorKind::affine8;
}

// A field of a JSON object, or a sentence about what is wrong with it as std::invalid_argument.
const json& field(const json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end()) throw std::invalid_argument("'" + key + "' is missing");
  return *found;
}

int integer_field(const json& object, const std::string& key, int low, int high) {
  const json& value = field(object, key);
  if (!value.is_number_integer()) throw std::invalid_argument("'" + key + "' is not an integer");
  const bool huge = value.is_number_unsigned() &&
                    value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  const int64_t number = huge ? std::numeric_limits<int64_t>::max() : value.get<int64_t>();
  if (number < low || number > high) {
    throw std::invalid_argument("'" + key + "' is outside " + std::to_string(low) + " to " +
                                std::to_string(high));
  }
  return static_cast<int>(number);
}

float positive_field(const json& object, const std::string& key) {
  const json& value = field(object, key);
  if (!value.is_number()) throw std::invalid_argument("'" + key + "' is not a number");
  const auto number = value.get<double>();
  if (!(number > 0.0) || number > 1e30) {
    throw std::invalid_argument("'" + key + "' is not a positive number");
  }
  return static_cast<float>(number);
}

std::string text_field(const json& object, const std::string& key) {
  const json& value = field(object, key);
  if (!value.is_string()) throw std::invalid_argument("'" + key + "' is not a text");
  return value.get<std::string>();
}

ModelShape shape_of(const json& metadata) {
  ModelShape shape;
  shape.hidden = integer_field(metadata, "hidden_size", 1, kMaxDimension);
  shape.intermediate = integer_field(metadata, "intermediate_size", 1, kMaxDimension);
  shape.layers = integer_field(metadata, "num_layers", 1, kMaxLayers);
  shape.heads = integer_field(metadata, "num_heads", 1, 1 << 12);
  shape.kv_heads = integer_field(metadata, "num_kv_heads", 1, 1 << 12);
  shape.head_dim = integer_field(metadata, "head_dim", 1, 1 << 10);
  shape.vocabulary = integer_field(metadata, "vocab_size", 1, kMaxDimension);
  shape.max_position = integer_field(metadata, "max_position", 1, kMaxDimension);
  shape.rope_theta = positive_field(metadata, "rope_theta");
  shape.norm_epsilon = positive_field(metadata, "rms_norm_eps");
  const json& tied = field(metadata, "tied_head");
  if (!tied.is_boolean()) throw std::invalid_argument("'tied_head' is not true or false");
  shape.tied_head = tied.get<bool>();
  if (shape.heads % shape.kv_heads != 0) {
    throw std::invalid_argument("'num_heads' is not a multiple of 'num_kv_heads'");
  }
  if (shape.head_dim % 2 != 0) throw std::invalid_argument("'head_dim' is odd");
  if (shape.intermediate % kTileRows != 0) {
    throw std::invalid_argument("'intermediate_size' is not a multiple of 16");
  }
  return shape;
}

TensorView described_tensor(const std::string& name, const json& entry) {
  if (!entry.is_object()) throw std::invalid_argument("its description is not an object");
  TensorView view;
  view.name = name;
  const std::string kind = text_field(entry, "kind");
  const auto known = std::ranges::find_if(
      kKinds, [&](TensorKind candidate) { return kind == name_of(candidate); });
  if (known == kKinds.end()) throw std::invalid_argument("kind '" + kind + "' is unknown");
  view.kind = *known;
  view.rows = integer_field(entry, "rows", 1, kMaxDimension);
  view.cols = integer_field(entry, "cols", 1, kMaxDimension);
  view.group = integer_field(entry, "group", 0, 128);
  if (view.kind == TensorKind::f32) {
    if (view.cols != 1) throw std::invalid_argument("a vector of kind f32 must have 'cols' 1");
  } else if (view.cols % 32 != 0) {
    throw std::invalid_argument("'cols' is not a multiple of 32");
  }
  if (!has_groups(view.kind)) {
    if (view.group != 0) throw std::invalid_argument("kind '" + kind + "' must have 'group' 0");
  } else if (view.group != 32 && view.group != 64 && view.group != 128) {
    throw std::invalid_argument("'group' is not 32, 64 or 128");
  } else if (view.cols % view.group != 0) {
    throw std::invalid_argument("'cols' is not a multiple of 'group'");
  }
  return view;
}

struct Expected {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  bool vector = false;
};

std::vector<Expected> expected_tensors(const ModelShape& shape) {
  std::vector<Expected> all;
  const int64_t hidden = shape.hidden;
  const int64_t query = int64_t{shape.heads} * shape.head_dim;
  const int64_t key_value = int64_t{shape.kv_heads} * shape.head_dim;
  all.push_back({"head", shape.vocabulary, hidden});
  if (!shape.tied_head) all.push_back({"embed", shape.vocabulary, hidden});
  all.push_back({"final_norm", hidden, 1, true});
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    all.push_back({prefix + "qkv", query + 2 * key_value, hidden});
    all.push_back({prefix + "o", hidden, query});
    all.push_back({prefix + "gate_up", 2 * int64_t{shape.intermediate}, hidden});
    all.push_back({prefix + "down", hidden, shape.intermediate});
    all.push_back({prefix + "attn_norm", hidden, 1, true});
    all.push_back({prefix + "mlp_norm", hidden, 1, true});
  }
  return all;
}

std::string dimensions(int64_t rows, int64_t cols) {
  return std::to_string(rows) + " x " + std::to_string(cols);
}

// Where the header says that a tensor lies, in bytes from the start of the data section.
struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
};

Extent extent_of(const json& entry, TensorKind kind, uint64_t data_bytes) {
  if (!entry.is_object()) throw std::invalid_argument("its header entry is not an object");
  const char* type = kind == TensorKind::f32 ? "F32" : "U8";
  if (text_field(entry, "dtype") != type) {
    throw std::invalid_argument("its dtype is not " + std::string(type));
  }
  const json& offsets = field(entry, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    throw std::invalid_argument("'data_offsets' is not a pair of byte offsets");
  }
  const Extent extent{offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
  if (extent.begin > extent.end) throw std::invalid_argument("its offsets run backwards");
  if (extent.end > data_bytes) {
    throw std::invalid_argument("it ends at byte " + std::to_string(extent.end) + " of " +
                                std::to_string(data_bytes) +
                                " in the data section: the file is truncated or damaged");
  }
  if (extent.begin % kAlignment != 0) {
    throw std::invalid_argument("it does not start on a multiple of 64 bytes");
  }
  const uint64_t width = kind == TensorKind::f32 ? 4 : 1;
  const json& shape = field(entry, "shape");
  if (!shape.is_array() || shape.size() != 1 || !shape[0].is_number_unsigned() ||
      shape[0].get<uint64_t>() != (extent.end - extent.begin) / width ||
      (extent.end - extent.begin) % width != 0) {
    throw std::invalid_argument("its shape does not agree with its byte offsets");
  }
  return extent;
}

}  // namespace

const char* name_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::affine4:
      return "affine4";
    case TensorKind::affine8:
      return "affine8";
    case TensorKind::f16:
      return "f16";
    case TensorKind::bf16:
      return "bf16";
    case TensorKind::f32:
      return "f32";
  }
  return "f32";
}

int64_t tensor_bytes(TensorKind kind, int rows, int cols, int group) {
  const int64_t tiles = (int64_t{rows} + kTileRows - 1) / kTileRows;
  switch (kind) {
    case TensorKind::affine4:
      return tiles * (cols / group) * (int64_t{group} * 8 + 64);
    case TensorKind::affine8:
      return tiles * (cols / group) * (int64_t{group} * 16 + 32);
    case TensorKind::f16:
    case TensorKind::bf16:
      return tiles * cols * 32;
    case TensorKind::f32:
      return int64_t{rows} * cols * 4;
  }
  return 0;
}

std::span<const float> TensorView::floats() const {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

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
  const std::size_t rest = bytes.size() - sizeof(header_bytes);
  if (header_bytes < 2 || header_bytes > kMaxHeaderBytes) {
    fail("its header length of " + std::to_string(header_bytes) +
         " bytes is absurd: it is not a packed model file.");
  }
  if (header_bytes > rest) fail("it is truncated inside its header.");
  const std::size_t data_start = sizeof(header_bytes) + header_bytes;
  if (data_start % kAlignment != 0) fail("its data does not start on a multiple of 64 bytes.");
  const std::span<const std::byte> data = bytes.subspan(data_start);

  json header;
  json metadata;
  std::string part = "the header";
  try {
    header = parse_json(
        {reinterpret_cast<const char*>(bytes.data()) + sizeof(header_bytes), header_bytes});
    if (!header.is_object()) throw std::invalid_argument("It is not an object.");
    part = "the metadata entry 'specquant'";
    const auto table = header.find("__metadata__");
    if (table == header.end() || !table->is_object() || !table->contains("specquant")) {
      fail(
          "it has no metadata entry 'specquant'. Pack the checkpoint with "
          "'python -m backends.pack'.");
    }
    metadata = parse_json(text_field(*table, "specquant"));
    if (!metadata.is_object()) throw std::invalid_argument("It is not an object.");
    header.erase("__metadata__");
  } catch (const std::invalid_argument& error) {
    fail("cannot read " + part + ". " + error.what());
  }

  json descriptions;
  try {
    if (integer_field(metadata, "format_version", 0, kMaxDimension) != 1) {
      throw std::invalid_argument("its format_version is not 1; pack the checkpoint again");
    }
    const std::string architecture = text_field(metadata, "architecture");
    if (architecture != "llama") {
      throw std::invalid_argument("its architecture is '" + architecture +
                                  "'; only 'llama' is supported");
    }
    shape_ = shape_of(metadata);
    name_ = text_field(metadata, "name");
    content_hash_ = text_field(metadata, "content_hash");
    weight_format_ = text_field(metadata, "weight_format");
    descriptions = field(metadata, "tensors");
    if (!descriptions.is_object()) throw std::invalid_argument("'tensors' is not an object");
  } catch (const std::invalid_argument& error) {
    fail(std::string(error.what()) + ".");
  }

  const std::vector<Expected> expected = expected_tensors(shape_);
  std::vector<std::pair<Extent, const TensorView*>> extents;
  for (const Expected& wanted : expected) {
    try {
      if (!descriptions.contains(wanted.name)) throw std::invalid_argument("it is missing");
      TensorView view = described_tensor(wanted.name, descriptions[wanted.name]);
      if (view.rows != wanted.rows || view.cols != wanted.cols ||
          (view.kind == TensorKind::f32) != wanted.vector) {
        throw std::invalid_argument("it is " + dimensions(view.rows, view.cols) + " of kind " +
                                    name_of(view.kind) + " where the model needs " +
                                    dimensions(wanted.rows, wanted.cols) +
                                    (wanted.vector ? " of kind f32" : " of a matrix kind"));
      }
      if (!header.contains(wanted.name)) throw std::invalid_argument("it has no data");
      const Extent extent = extent_of(header[wanted.name], view.kind, data.size());
      const int64_t needed = tensor_bytes(view.kind, view.rows, view.cols, view.group);
      if (extent.end - extent.begin != static_cast<uint64_t>(needed)) {
        throw std::invalid_argument("it has " + std::to_string(extent.end - extent.begin) +
                                    " bytes where its kind and shape need " +
                                    std::to_string(needed));
      }
      view.bytes = data.subspan(extent.begin, extent.end - extent.begin);
      const auto placed = tensors_.emplace(wanted.name, std::move(view)).first;
      extents.emplace_back(extent, &placed->second);
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
      fail("tensors '" + extents[i - 1].second->name + "' and '" + extents[i].second->name +
           "' overlap.");
    }
  }
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
