// Requests and models that the CPU model refuses, and that refusing changes nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "core/errors.h"
#include "cpu/model.h"
#include "tests/model_rows.h"
#include "tests/packed_builder.h"

namespace specquant::cpu {
namespace {

using reference::RandomModel;
using reference::RandomModelSpec;
using test::random_tokens;
using test::Tokens;

TEST_CASE("a bad request is refused before anything is written") {
  const RandomModel random(reference::small_spec());
  const Precision precisions[] = {Precision::w4a8};
  const auto model = make_cpu_model(random.file(), precisions, 2, 16, 1);
  std::mt19937 source(5);
  const Tokens tokens = random_tokens(4, source);
  const Rows good{0, 0, tokens, {}};
  model->forward(Precision::w4a8, {&good, 1}, {});
  const std::vector<uint16_t> before(model->cache().keys(0, 0, 0),
                                     model->cache().keys(0, 0, 0) + 16 * 16);

  const Tokens other = random_tokens(4, source);
  const std::vector<int32_t> unknown{0, 300};
  const std::vector<uint64_t> not_a_tree{1, 2, 7, 8};
  const Rows first{0, 0, other, {}};        // well-formed: it must not run because another is not
  const Rows bad[] = {{1, 14, other, {}},   // beyond the cache
                      {0, 0, other, {}},    // the slot twice
                      {2, 0, other, {}},    // no such slot
                      {1, -1, other, {}},   // a negative position
                      {1, 0, unknown, {}},  // no such token
                      {1, 0, {}, {}},       // nothing
                      {1, 0, other, not_a_tree}};  // row 2 has two parents
  for (const Rows& rows : bad) {
    const Rows batch[] = {first, rows};
    CHECK_THROWS_AS(model->forward(Precision::w4a8, batch, {}), std::invalid_argument);
  }
  CHECK_THROWS_AS(model->forward(Precision::fp16, {&first, 1}, {}), std::invalid_argument);
  CHECK_THROWS_AS(model->forward(Precision::w4a8, {&first, 1}, {LogitRows::last, 301}),
                  std::invalid_argument);
  const std::vector<int> falling{2, 1};
  CHECK_THROWS_AS(model->compact(0, 0, falling), std::invalid_argument);
  const std::vector<int> beyond{20};
  CHECK_THROWS_AS(model->compact(0, 0, beyond), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(model->save(3, 1)), std::invalid_argument);
  CHECK_THROWS_AS(model->restore(0, nullptr), std::invalid_argument);
  CHECK(std::equal(before.begin(), before.end(), model->cache().keys(0, 0, 0)));
}

// The model must be refused with an error of this type whose message holds every part.
void check_refused(const RandomModel& random, Precision precision, int batch, int context,
                   core::ErrorType type, std::initializer_list<const char*> parts) {
  const Precision precisions[] = {precision};
  try {
    make_cpu_model(random.file(), precisions, batch, context, 1);
    FAIL("nothing was refused");
  } catch (const core::Error& error) {
    CHECK(error.type() == type);
    const std::string message = error.what();
    CAPTURE(message);
    for (const char* part : parts) CHECK(message.find(part) != std::string::npos);
  }
}

TEST_CASE("a model that cannot be built says why") {
  using core::ErrorType;
  const RandomModel four(reference::small_spec());
  RandomModelSpec eight_bits = reference::small_spec();
  eight_bits.layer_kind = WeightKind::affine8;
  const RandomModel eight(eight_bits);
  check_refused(four, Precision::w8a8, 1, 64, ErrorType::unsupported,
                {"w8a8", "layers.0.qkv", "affine4"});
  check_refused(eight, Precision::w4a8, 1, 64, ErrorType::unsupported,
                {"w4a8", "layers.0.qkv", "affine8"});
  // 2^40 positions of 2 layers, 2 heads, 16 dimensions, keys and values, 2 bytes: 2^48 bytes.
  check_refused(four, Precision::w4a8, 1 << 20, 1 << 20, ErrorType::out_of_memory,
                {"281474.977 GB", "are available"});
  check_refused(four, Precision::w4a8, 0, 64, ErrorType::bad_request, {"max_batch"});
  RandomModelSpec narrow = reference::small_spec();
  narrow.shape.heads = 12;
  narrow.shape.kv_heads = 4;
  narrow.shape.head_dim = 8;
  check_refused(RandomModel(narrow), Precision::w4a8, 1, 64, ErrorType::model,
                {"layers.0.qkv", "heads of 8"});
  RandomModelSpec wide = reference::normed_heads_spec();
  wide.shape.head_dim = 272;
  check_refused(RandomModel(wide), Precision::w4a8, 1, 64, ErrorType::model,
                {"layers.0.q_norm", "heads of 272", "at most 256"});
}

}  // namespace
}  // namespace specquant::cpu
