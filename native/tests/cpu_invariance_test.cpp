// Shape invariance: the logits of a row are bitwise the same however it is computed.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/cpu_rows.h"
#include "tests/model_rows.h"

namespace specquant::cpu {
namespace {

using namespace reference;
using test::random_tokens;
using test::random_tree;
using test::Row;
using test::Tokens;
using test::Tree;

TEST_CASE("one row at a time equals any number of rows at once") {
  const RandomModel random(reference::small_spec());
  const auto model = build(random, 2);
  std::mt19937 source(11);
  const Tokens tokens = random_tokens(90, source);
  for (const Precision precision : kPrecisions) {
    CAPTURE(std::string(name_of(precision)));
    const std::vector<Row> plain = one_by_one(*model, precision, 0, tokens);
    CHECK(std::set<float>(plain[0].values.begin(), plain[0].values.end()).size() > 200);
    for (int n = 2; n <= 64; ++n) {
      const int base = 90 - n - n % 7;
      const Rows rows{0, base, std::span(tokens).subspan(base, n), {}};
      const std::vector<Row> together = forward(*model, precision, {rows});
      CAPTURE(n);
      CHECK(std::equal(together.begin(), together.end(), plain.begin() + base));
    }
  }
}

TEST_CASE("8-bit weights and an untied 16-bit head are shape invariant too") {
  reference::RandomModelSpec spec = reference::small_spec();
  spec.layer_kind = WeightKind::affine8;
  spec.head_kind = WeightKind::f16;
  spec.shape.tied_head = false;
  const RandomModel random(spec);
  std::mt19937 source(15);
  const Tokens tokens = random_tokens(64, source);
  const Precision precisions[] = {Precision::w8a8};
  std::vector<Row> plain;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    if (kernels(isa) == nullptr) continue;
    CpuModel model(random.file(), precisions, 2, kContext, std::make_shared<ThreadPool>(2),
                   *kernels(isa));
    const std::vector<Row> alone = one_by_one(model, Precision::w8a8, 0, tokens);
    if (plain.empty()) plain = alone;
    CHECK(alone == plain);
    for (int n = 2; n <= 64; n += 5) {
      const Rows rows{0, 64 - n, std::span(tokens).last(n), {}};
      const std::vector<Row> together = forward(model, Precision::w8a8, {rows});
      CHECK(std::equal(together.begin(), together.end(), plain.begin() + (64 - n)));
    }
  }
}

TEST_CASE("biases, norms of heads and transforms are shape invariant too") {
  for (const reference::RandomModelSpec& spec :
       {reference::biased_spec(), reference::normed_heads_spec(), reference::transformed_spec()}) {
    CAPTURE(spec.seed);
    const RandomModel random(spec);
    std::mt19937 source(16);
    const Tokens tokens = random_tokens(70, source);
    for (const Precision precision : kPrecisions) {
      const auto model = build(random, 2);
      const std::vector<Row> plain = one_by_one(*model, precision, 0, tokens);
      for (const int n : {2, 5, 17, 33, 64}) {
        const Rows rows{0, 70 - n, std::span(tokens).last(n), {}};
        const std::vector<Row> together = forward(*model, precision, {rows});
        CHECK(std::equal(together.begin(), together.end(), plain.begin() + (70 - n)));
      }
      for (const char* isa : {"scalar", "avx2", "avx512"}) {
        if (kernels(isa) == nullptr) continue;
        if (precision == Precision::bf16 && kernels(isa)->native_bf16 != kernels().native_bf16) {
          continue;
        }
        const auto other = build(random, 3, *kernels(isa));
        CHECK(forward(*other, precision, {{1, 0, tokens, {}}}) == plain);
      }
    }
  }
}

TEST_CASE("a prompt of many passes equals its tokens one at a time") {
  const RandomModel random(reference::small_spec());
  const auto model = build(random, 2);
  std::mt19937 source(12);
  const Tokens tokens = random_tokens(3 * kPassRows + 17, source);
  for (const Precision precision : kPrecisions) {
    const std::vector<Row> plain = one_by_one(*model, precision, 0, tokens);
    CHECK(forward(*model, precision, {{1, 0, tokens, {}}}) == plain);
    CHECK(cached(*model, 1, 200) == cached(*model, 0, 200));
  }
}

TEST_CASE("a sequence in a mixed batch equals itself alone") {
  const RandomModel random(reference::small_spec());
  const auto model = build(random, 2);
  for (unsigned seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    std::mt19937 source(100 + seed);
    const Precision precision = kPrecisions[seed % std::size(kPrecisions)];
    const int sequences = 1 + static_cast<int>(seed % 8);
    std::vector<Tokens> prompts;
    std::vector<Tree> parts;
    std::vector<Rows> batch;
    for (int slot = 0; slot < sequences; ++slot) {
      prompts.push_back(random_tokens(1 + static_cast<int>(source() % 70), source));
      parts.push_back(random_tree(1 + static_cast<int>(source() % 33), source));
      forward(*model, precision, {{slot, 0, prompts.back(), {}}});
    }
    for (int slot = 0; slot < sequences; ++slot) {
      const bool chain = source() % 2 == 0;
      const Tree& part = parts[slot];
      batch.push_back({slot, static_cast<int>(prompts[slot].size()), part.tokens,
                       chain ? std::span<const uint64_t>{} : part.ancestors});
    }
    const std::vector<Row> together = forward(*model, precision, batch);
    std::size_t row = 0;
    for (Rows rows : batch) {
      forward(*model, precision, {{kSlots - 1, 0, prompts[rows.slot], {}}});
      rows.slot = kSlots - 1;
      for (const Row& alone : forward(*model, precision, {rows})) CHECK(alone == together[row++]);
    }
  }
}

TEST_CASE("threads and instruction sets do not change a bit") {
  for (const bool long_heads : {false, true}) {
    reference::RandomModelSpec spec = reference::small_spec();
    if (long_heads) spec.shape.head_dim = 80;  // 64 + 16 dimensions
    const RandomModel random(spec);
    std::mt19937 source(13);
    const Tokens tokens = random_tokens(75, source);
    const Tree tree = random_tree(30, source);
    const auto run = [&](int threads, const char* isa, Precision precision) {
      const auto model = build(random, threads, *kernels(isa));
      std::vector<Row> all = forward(*model, precision, {{3, 0, tokens, {}}});
      for (const Row& row : forward(*model, precision, {{3, 75, tree.tokens, tree.ancestors}})) {
        all.push_back(row);
      }
      all.push_back(forward(*model, precision, {{3, 75, std::span(tokens).first(1), {}}})[0]);
      return all;
    };
    for (const Precision precision : kPrecisions) {
      CAPTURE(std::string(name_of(precision)));
      for (const char* isa : {"scalar", "avx2", "avx512"}) {
        if (kernels(isa) == nullptr) continue;
        CAPTURE(isa);
        const std::vector<Row> one = run(1, isa, precision);
        for (const int threads : {2, 4}) CHECK(run(threads, isa, precision) == one);
        // The processor's own bf16 instruction sums in its own order.
        if (precision == Precision::bf16 && kernels(isa)->native_bf16) continue;
        CHECK(one == run(1, "scalar", precision));
      }
    }
  }
}

TEST_CASE("a rolled back, saved or restored cache continues as if nothing had happened") {
  const RandomModel random(reference::small_spec());
  const auto model = build(random, 2);
  std::mt19937 source(14);
  const Tokens tokens = random_tokens(60, source);
  const Tokens refused = random_tokens(20, source);
  for (const Precision precision : kPrecisions) {
    const std::vector<Row> plain = one_by_one(*model, precision, 0, tokens);
    // Another precision drafts into the same places, is refused and overwritten.
    forward(*model, precision, {{1, 0, std::span(tokens).first(37), {}}});
    forward(*model, Precision::w4a4, {{1, 37, refused, {}}});
    const Rows rest{1, 37, std::span(tokens).subspan(37), {}};
    const std::vector<Row> after = forward(*model, precision, {rest});
    CHECK(std::equal(after.begin(), after.end(), plain.begin() + 37));
    // The copy goes into a slot that held something else.
    const auto saved = model->save(0, 37);
    forward(*model, Precision::w4a4, {{2, 0, refused, {}}});
    model->restore(2, saved);
    CHECK(cached(*model, 2, 37) == cached(*model, 0, 37));
    const Rows again{2, 37, std::span(tokens).subspan(37), {}};
    CHECK(forward(*model, precision, {again}) == after);
  }
}

}  // namespace
}  // namespace specquant::cpu
