// A CPU model in every precision, and what is compared of it: rows with all their taps, and cached
// keys and values.
#pragma once

#include <memory>
#include <vector>

#include "cpu/model.h"
#include "tests/model_rows.h"
#include "tests/packed_builder.h"

namespace specquant::cpu::reference {

inline constexpr Precision kPrecisions[] = {
    Precision::fp16,          Precision::bf16,        Precision::w4a16,     Precision::w4a8,
    Precision::w4a4,          Precision::w4a4_g16,    Precision::w4a4_qkv8, Precision::w4a4_od8,
    Precision::w4a4_g16_qkv8, Precision::w4a4_g16_od8};
inline constexpr int kContext = 256;
inline constexpr int kSlots = 9;
inline constexpr int kTaps[] = {3, 0, 1, 2};  // of two layers

inline std::vector<test::Row> forward(Model& model, Precision precision,
                                      const std::vector<Rows>& batch) {
  return test::forward(model, precision, batch, kTaps);
}

inline std::vector<test::Row> one_by_one(Model& model, Precision precision, int slot,
                                         const test::Tokens& tokens) {
  return test::one_by_one(model, precision, slot, tokens, kTaps);
}

inline std::unique_ptr<CpuModel> build(const RandomModel& random, int threads,
                                       const KernelTable& table = kernels()) {
  return std::make_unique<CpuModel>(random.file(), kPrecisions, kSlots, kContext,
                                    std::make_shared<ThreadPool>(threads), table);
}

// The first `length` keys and values of a slot.
inline std::vector<uint16_t> cached(CpuModel& model, int slot, int length) {
  const ModelShape& shape = model.shape();
  std::vector<uint16_t> all;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int position = 0; position < length; ++position) {
        for (int d = 0; d < shape.head_dim; ++d) {
          all.push_back(model.cache().key(slot, layer, head, position, d));
          all.push_back(model.cache().value(slot, layer, head, position, d));
        }
      }
    }
  }
  return all;
}

}  // namespace specquant::cpu::reference
