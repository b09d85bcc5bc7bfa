// What blocks of a narrow pass hand to one another without a barrier.
//
// Until a word is written it holds a mark that no result has, so that a block that needs it looks
// until the mark is gone: the look brings the value itself, and no one waits for blocks whose words
// it does not need. There are two sets of this memory, for layers of either parity. Who writes a
// word marks the same word of the other set: behind the grid's barrier of this layer, when what the
// layer before left there has been read, and before that of the next, behind which it is written
// and read again.
#pragma once

#include "cuda/activations.cuh"

namespace specquant::cuda {

// Two f16 or bf16 values, or an f32, that are NaN in a form that arithmetic does not give.
constexpr uint32_t kMark = ~0U;

__device__ __forceinline__ bool written(const uint4& x) {
  return x.x != kMark && x.y != kMark && x.z != kMark && x.w != kMark;
}

// Where words are handed over, and how far from there the other set's are (0: there is none).
template <class Element>
struct HandedOver {
  Element* words;
  std::ptrdiff_t other;

  __device__ __forceinline__ void put(size_t index, uint32_t word) const {
    Element* to = words + index;
    store_relaxed(to, word);
    if (other != 0) store_relaxed(reinterpret_cast<uint8_t*>(to) + other, kMark);
  }
};

// A field of Handover in a layer.
template <class Element>
__device__ __forceinline__ HandedOver<Element> handed_over(const Handover& h, Element* field,
                                                           int layer) {
  auto* const first = reinterpret_cast<uint8_t*>(field);
  return layer % 2 == 0 ? HandedOver<Element>{field, h.next}
                        : HandedOver<Element>{reinterpret_cast<Element*>(first + h.next), -h.next};
}

// A column of two tokens, `token` and the next, as far as they are of `rows`. Lanes that differ in
// bit kLaneBit of their number hold columns that differ in bit 1, which lie side by side; all lanes
// of the warp take part.
template <int kLaneBit>
__device__ __forceinline__ void hand_over(const HandedOver<uint16_t>& to, int token, int rows,
                                          int column, uint16_t first, uint16_t second) {
  const bool last = (column & 2) != 0;
  const uint32_t other =
      __shfl_xor_sync(~0U, static_cast<uint32_t>(last ? first : second), kLaneBit);
  const uint32_t pair = last ? other | static_cast<uint32_t>(second) << 16
                             : static_cast<uint32_t>(first) | other << 16;
  const int row = token + (last ? 1 : 0);
  if (row < rows) to.put(activation_index(row, column & ~2, 0), pair);
}

// A column of one row; lanes that differ in bit 1 of their number hold columns that do.
__device__ __forceinline__ void hand_over(const HandedOver<uint16_t>& to, int row, int column,
                                          uint16_t value) {
  const uint32_t other = __shfl_xor_sync(~0U, static_cast<uint32_t>(value), 2);
  if ((column & 2) != 0) return;
  to.put(activation_index(row, column, 0), static_cast<uint32_t>(value) | other << 16);
}

// Marks the columns of activations that are there; padding stays zeros. Part of the grid's threads
// do it.
__device__ __forceinline__ void mark_columns(uint16_t* activations, int rows, int columns,
                                             int thread, int threads) {
  for (int i = thread; i < rows * ((columns + 31) / 32) * 4; i += threads) {
    const int block = i / 4 / rows, row = i / 4 % rows, eight = i % 4;
    if (block * 32 + eight * 8 >= columns) continue;
    __stcg(reinterpret_cast<uint4*>(activations) + (block * kPassRows + row) * 4 + eight,
           make_uint4(kMark, kMark, kMark, kMark));
  }
}
__device__ __forceinline__ void mark_words(float* words, int count, int thread, int threads) {
  for (int i = thread; i < count; i += threads) store_relaxed(words + i, kMark);
}

}  // namespace specquant::cuda
