#include "core/packed_tensor.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/packed_metadata.h"

namespace specquant::core {
namespace {

using nlohmann::json;

constexpr std::size_t kAlignment = 64;

constexpr std::array kKinds{TensorKind::affine4, TensorKind::affine4z, TensorKind::affine8,
                            TensorKind::f16,     TensorKind::bf16,     TensorKind::f32,
                            TensorKind::i32};

bool has_groups(TensorKind kind) {
  return kind == TensorKind::affine4 || kind == TensorKind::affine4z || kind == TensorKind::affine8;
}

}  // namespace

const char* name_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::affine4:
      return "affine4";
    case TensorKind::affine4z:
      return "affine4z";
    case TensorKind::affine8:
      return "affine8";
    case TensorKind::f16:
      return "f16";
    case TensorKind::bf16:
      return "bf16";
    case TensorKind::f32:
      return "f32";
    case TensorKind::i32:
      return "i32";
  }
  return "f32";
}

int64_t tensor_bytes(TensorKind kind, int rows, int cols, int group) {
  const int64_t tiles = (int64_t{rows} + kPackedTileRows - 1) / kPackedTileRows;
  switch (kind) {
    case TensorKind::affine4:
    case TensorKind::affine4z:
      return tiles * (cols / group) * (int64_t{group} * 8 + 64);
    case TensorKind::affine8:
      return tiles * (cols / group) * (int64_t{group} * 16 + 32);
    case TensorKind::f16:
    case TensorKind::bf16:
      return tiles * cols * 32;
    case TensorKind::f32:
    case TensorKind::i32:
      return int64_t{rows} * cols * 4;
  }
  return 0;
}

std::span<const float> TensorView::floats() const {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<const int32_t> TensorView::integers() const {
  return {reinterpret_cast<const int32_t*>(bytes.data()), bytes.size() / sizeof(int32_t)};
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
  view.rows = integer_field(entry, "rows", 1, kMaxPackedDimension);
  view.cols = integer_field(entry, "cols", 1, kMaxPackedDimension);
  view.group = integer_field(entry, "group", 0, 128);
  if (is_vector(view.kind)) {
    if (view.cols != 1) {
      throw std::invalid_argument("a vector of kind " + kind + " must have 'cols' 1");
    }
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

Extent extent_of(const json& entry, TensorKind kind, uint64_t data_bytes) {
  if (!entry.is_object()) throw std::invalid_argument("its header entry is not an object");
  const char* type = kind == TensorKind::f32 ? "F32" : kind == TensorKind::i32 ? "I32" : "U8";
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
  const uint64_t width = is_vector(kind) ? 4 : 1;
  const json& shape = field(entry, "shape");
  if (!shape.is_array() || shape.size() != 1 || !shape[0].is_number_unsigned() ||
      shape[0].get<uint64_t>() != (extent.end - extent.begin) / width ||
      (extent.end - extent.begin) % width != 0) {
    throw std::invalid_argument("its shape does not agree with its byte offsets");
  }
  return extent;
}

}  // namespace specquant::core
