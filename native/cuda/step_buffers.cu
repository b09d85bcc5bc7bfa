#include "cuda/step_buffers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/weights.h"

namespace specquant::cuda {
namespace {

constexpr const char* kWhat = "buffers";
constexpr std::size_t kFloats = kPassRows * sizeof(float);
constexpr std::size_t kHalves = kPassRows * sizeof(uint16_t);

}  // namespace

StepBuffers::CodesBuffer::CodesBuffer(int columns)
    : codes_(static_cast<std::size_t>(kPassRows) * columns, kWhat),
      scales_(kFloats * (columns / 32), kWhat) {}

StepBuffers::StepBuffers(const ModelShape& shape, int widest, int sliced_tiles, int max_context,
                         int blocks, const core::RopeScaling& scaling)
    : shape_(shape) {
  const int width = shape.heads * shape.head_dim;
  residual_ = DeviceBuffer(kFloats * shape.hidden, kWhat);
  squares_ = DeviceBuffer(kFloats * (shape.hidden / kTileRows), kWhat);
  normed_ = DeviceBuffer(kHalves * padded_columns(shape.hidden), kWhat);
  query_ = DeviceBuffer(kHalves * width, kWhat);
  attention_ = DeviceBuffer(kHalves * padded_columns(width), kWhat);
  mlp_ = DeviceBuffer(kHalves * padded_columns(shape.intermediate), kWhat);
  widest = padded_columns(std::max({widest, shape.hidden, width, shape.intermediate}));
  codes_ = DeviceBuffer(static_cast<std::size_t>(kPassRows) * widest, kWhat);
  scales_ = DeviceBuffer(kFloats * (widest / 32), kWhat);
  normed_codes_ = CodesBuffer(padded_columns(shape.hidden));
  attention_codes_ = CodesBuffer(padded_columns(width));
  mlp_codes_ = CodesBuffer(padded_columns(shape.intermediate));
  allocate_handover(blocks);
  slice_sums_ = DeviceBuffer(kFloats * kTileRows * sliced_tiles, kWhat);
  slice_arrivals_ = DeviceBuffer(sizeof(unsigned) * sliced_tiles, kWhat);
  fill_rotary(max_context, scaling);
}

void StepBuffers::allocate_handover(int blocks) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t hidden = kHalves * padded_columns(shape_.hidden);
  const std::size_t squares = kFloats * (shape_.hidden / kTileRows);
  std::size_t bytes = 0;
  uint8_t* memory = nullptr;
  const auto take = [&]<class Element>(Element*& field, std::size_t size) {
    field = reinterpret_cast<Element*>(memory + bytes);
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  };
  const auto lay_out = [&] {
    bytes = 0;
    // A unit that several blocks attend to has two of them at least.
    take(handover_.attention_parts, sizeof(AttentionParts<kMaxHeadDim>) * (blocks / 2));
    take(handover_.attention, kHalves * padded_columns(shape_.heads * shape_.head_dim));
    take(handover_.before_mlp, hidden);
    take(handover_.squares_before_mlp, squares);
    take(handover_.mlp, kHalves * padded_columns(shape_.intermediate));
    take(handover_.behind, hidden);
    take(handover_.squares_behind, squares);
  };
  lay_out();
  handover_memory_ = DeviceBuffer(2 * bytes, kWhat);
  memory = handover_memory_.as<uint8_t>();
  lay_out();
  handover_.next = static_cast<std::ptrdiff_t>(bytes);
}

void StepBuffers::fill_rotary(int max_context, const core::RopeScaling& scaling) {
  const auto pairs = static_cast<std::size_t>(shape_.head_dim / 2);
  const std::vector<double> frequencies =
      core::rotary_frequencies(shape_.head_dim, shape_.rope_theta, scaling);
  std::vector<float2> rotary(pairs * max_context);
  for (int position = 0; position < max_context; ++position) {
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const double angle = position * frequencies[pair];
      rotary[position * pairs + pair] = {static_cast<float>(std::cos(angle)),
                                         static_cast<float>(std::sin(angle))};
    }
  }
  rotary_ = DeviceBuffer(rotary.size() * sizeof(float2), kWhat);
  check(cudaMemcpy(rotary_.as<void>(), rotary.data(), rotary_.bytes(), cudaMemcpyHostToDevice),
        kWhat);
}

void StepBuffers::describe(StepArgs& a) const {
  a.layers = shape_.layers;
  a.hidden = shape_.hidden;
  a.intermediate = shape_.intermediate;
  a.heads = shape_.heads;
  a.kv_heads = shape_.kv_heads;
  a.head_dim = shape_.head_dim;
  a.hidden_padded = padded_columns(shape_.hidden);
  a.attention_padded = padded_columns(shape_.heads * shape_.head_dim);
  a.intermediate_padded = padded_columns(shape_.intermediate);
  a.epsilon = shape_.norm_epsilon;
  a.rotary = rotary_.as<float2>();
  a.residual = residual_.as<float>();
  a.squares = squares_.as<float>();
  a.normed = normed_.as<uint16_t>();
  a.first = a.normed;
  a.first_padded = a.hidden_padded;
  a.handover = handover_;
  a.query = query_.as<__half>();
  a.attention = attention_.as<uint16_t>();
  a.mlp = mlp_.as<uint16_t>();
  a.codes = codes_.as<int8_t>();
  a.scales = scales_.as<float>();
  a.normed_codes = normed_codes_.codes();
  a.attention_codes = attention_codes_.codes();
  a.mlp_codes = mlp_codes_.codes();
  a.exchange = {slice_sums_.as<float4>(), slice_arrivals_.as<unsigned>()};
}

}  // namespace specquant::cuda
