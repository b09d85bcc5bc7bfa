// The choice of an instruction set, and the parts of the kernel interface that need none.
#include "cpu/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace specquant::cpu {

namespace avx512 {
const KernelTable& table(bool native_bf16);
}
namespace avx2 {
const KernelTable& table(bool native_bf16);
}
namespace scalar {
const KernelTable& table(bool native_bf16);
}

namespace {

// Each of these asks the operating system's state as well (XCR0): libgcc clears what it does not
// save.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

const KernelTable& choose() {
  if (const char* wanted = std::getenv("SPECQUANT_ISA"); wanted != nullptr && *wanted != '\0') {
    if (const KernelTable* table = kernels(wanted)) return *table;
    throw std::runtime_error("SPECQUANT_ISA is '" + std::string(wanted) +
                             "', which this processor cannot run or this program does not know. "
                             "Set it to scalar, avx2 or avx512, or leave it unset.");
  }
  for (const char* name : {"avx512", "avx2"}) {
    if (const KernelTable* table = kernels(name)) return *table;
  }
  return scalar::table(false);
}

std::size_t bytes_per_value(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::f32:
    case ActivationKind::bf16:
      return 4;  // bf16 is held as f32 where the processor has no bf16
    case ActivationKind::i16:
      return 2;
    case ActivationKind::i8:
    case ActivationKind::u4:
    case ActivationKind::u4g16:
      return 1;
  }
  return 4;
}

bool multiplies(WeightKind weights, ActivationKind activations) {
  switch (weights) {
    case WeightKind::f16:
      return activations == ActivationKind::f32;
    case WeightKind::bf16:
      return activations == ActivationKind::bf16;
    case WeightKind::affine4:
    case WeightKind::affine4z:
    case WeightKind::affine8:
      return activations == ActivationKind::i16 || activations == ActivationKind::i8 ||
             activations == ActivationKind::u4 || activations == ActivationKind::u4g16;
  }
  return false;
}

template <class Vector>
void grow(Vector& vector, std::size_t size) {
  if (vector.size() < size) vector.resize(size);
}

}  // namespace

const char* name_of(WeightKind kind) {
  switch (kind) {
    case WeightKind::affine4:
      return "affine4";
    case WeightKind::affine4z:
      return "affine4z";
    case WeightKind::affine8:
      return "affine8";
    case WeightKind::f16:
      return "f16";
    case WeightKind::bf16:
      return "bf16";
  }
  return "unknown";
}

const char* name_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::f32:
      return "f32";
    case ActivationKind::bf16:
      return "bf16";
    case ActivationKind::i16:
      return "i16";
    case ActivationKind::i8:
      return "i8";
    case ActivationKind::u4:
      return "u4";
    case ActivationKind::u4g16:
      return "u4g16";
  }
  return "unknown";
}

std::size_t Matrix::tile_bytes() const {
  const auto columns = static_cast<std::size_t>(cols);
  switch (kind) {
    case WeightKind::affine4:
    case WeightKind::affine4z:
      return columns / group * (static_cast<std::size_t>(group) * 8 + 64);
    case WeightKind::affine8:
      return columns / group * (static_cast<std::size_t>(group) * 16 + 32);
    case WeightKind::f16:
    case WeightKind::bf16:
      return columns * kTileRows * 2;
  }
  return 0;
}

void PackedRows::prepare(ActivationKind new_kind, int new_rows, int new_cols) {
  if (new_rows <= 0 || new_cols <= 0 || new_cols % kActivationGroup != 0) {
    throw std::invalid_argument("Activations of " + std::to_string(new_rows) + " rows and " +
                                std::to_string(new_cols) +
                                " columns cannot be packed: columns must be a multiple of 32.");
  }
  kind = new_kind;
  rows = new_rows;
  cols = new_cols;
  const std::size_t values = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  grow(data, values * bytes_per_value(kind));
  if (kind == ActivationKind::f32 || kind == ActivationKind::bf16) return;
  const std::size_t groups = values / activation_group(kind);
  grow(scale, groups);
  grow(scaled_sum, groups);
  grow(integer_sum, groups);
}

std::size_t PackedRows::index(int row, int group) const {
  const int first = row / kRowBlock * kRowBlock;
  const int block_rows = std::min(kRowBlock, rows - first);
  return static_cast<std::size_t>(first) * (cols / activation_group(kind)) +
         static_cast<std::size_t>(group) * block_rows + (row - first);
}

void check_matmul(const Matrix& weights, const PackedRows& x, int tile_begin, int tile_end) {
  const auto fail = [&](const std::string& reason) {
    throw std::invalid_argument("Cannot multiply " + std::string(name_of(weights.kind)) +
                                " weights of " + std::to_string(weights.cols) + " columns by " +
                                name_of(x.kind) + " activations of " + std::to_string(x.cols) +
                                " columns: " + reason);
  };
  if (!multiplies(weights.kind, x.kind)) fail("there is no kernel for this pair.");
  if (weights.cols != x.cols) fail("the columns differ.");
  if (tile_begin < 0 || tile_end > weights.tile_count() || tile_begin > tile_end) {
    fail("tiles " + std::to_string(tile_begin) + " to " + std::to_string(tile_end) +
         " are not within " + std::to_string(weights.tile_count()) + ".");
  }
  const bool known_group = weights.group == 32 || weights.group == 64 || weights.group == 128;
  if (is_affine(weights.kind) && (!known_group || weights.cols % weights.group != 0)) {
    fail("a weight group of " + std::to_string(weights.group) + " does not fit.");
  }
}

const KernelTable& kernels() {
  static const KernelTable& chosen = choose();
  return chosen;
}

const KernelTable* kernels(const std::string& name) {
  if (name == "scalar") return &scalar::table(false);
  if (name == "avx2" && has_avx2()) return &avx2::table(false);
  if (name == "avx512" && has_avx512()) {
    return &avx512::table(__builtin_cpu_supports("avx512bf16") != 0);
  }
  return nullptr;
}

}  // namespace specquant::cpu
