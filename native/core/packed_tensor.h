// One tensor of a packed file: how it is stored, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace specquant::core {

enum class TensorKind { affine4, affine4z, affine8, f16, bf16, f32, i32 };

// A plain vector, as opposed to the tiles of a matrix.
inline bool is_vector(TensorKind kind) {
  return kind == TensorKind::f32 || kind == TensorKind::i32;
}

const char* name_of(TensorKind kind);

// Bytes of a tensor of this logical shape; the last tile of 16 rows counts whole.
int64_t tensor_bytes(TensorKind kind, int rows, int cols, int group);

struct TensorView {
  std::string name;
  TensorKind kind = TensorKind::f32;
  int rows = 0;   // logical output rows, before padding to 16
  int cols = 0;   // a multiple of 32 (1 for f32 and i32)
  int group = 0;  // columns that share s and m: 32, 64 or 128 (0 for kinds without groups)
  std::span<const std::byte> bytes;  // starts on a multiple of 64

  std::span<const float> floats() const;      // f32 only
  std::span<const int32_t> integers() const;  // i32 only
};

// The view, still without bytes, that an entry of the metadata describes. Throws
// std::invalid_argument with the end of a sentence, as does extent_of.
TensorView described_tensor(const std::string& name, const nlohmann::json& entry);

// Where the header says that a tensor lies, in bytes from the start of the data section.
struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
};

Extent extent_of(const nlohmann::json& entry, TensorKind kind, uint64_t data_bytes);

}  // namespace specquant::core
