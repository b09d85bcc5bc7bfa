// Shape invariance of the CUDA engine: the logits of a row are bitwise the same however it is
// computed. Skipped, with the reason, without a GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/cuda_models.h"
#include "tests/cuda_parts.h"
#include "tests/model_rows.h"

namespace specquant::cuda {
namespace {

using namespace test;

struct Case {
  RandomModelSpec spec;
  Precision precision;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const RandomModelSpec& spec : {narrow_spec(), wide_spec()}) {
    for (const Precision precision :
         {Precision::fp16, Precision::bf16, Precision::w4a16, Precision::w4a8, Precision::w4a4}) {
      cases.push_back({spec, precision});
    }
  }
  for (const int group : {64, 128}) {
    for (const Precision precision : {Precision::w4a16, Precision::w4a8, Precision::w4a4}) {
      cases.push_back({zero_point_spec(group), precision});
    }
  }
  cases.push_back({eight_bit_spec(), Precision::w8a8});
  return cases;
}

TEST_CASE("one row at a time equals any number of rows at once") {
  NEEDS_GPU();
  for (const Case& c : all_cases()) {
    const RandomModel random(c.spec);
    const auto model = build(random, {&c.precision, 1});
    CAPTURE(std::string(name_of(c.precision)));
    CAPTURE(c.spec.seed);
    std::mt19937 source(11);
    const Tokens tokens = random_tokens(150, source);
    const std::vector<Row> plain = one_by_one(*model, c.precision, 0, tokens);
    CHECK(std::set<float>(plain[0].values.begin(), plain[0].values.end()).size() > 200);
    for (int n = 2; n <= 64; ++n) {
      const int base = 150 - n - n % 7;
      const Rows rows{0, base, std::span(tokens).subspan(base, n), {}};
      const std::vector<Row> together = forward(*model, c.precision, {rows});
      CAPTURE(n);
      CHECK(std::equal(together.begin(), together.end(), plain.begin() + base));
    }
    // A prompt of several passes, in another slot.
    CHECK(forward(*model, c.precision, {{1, 0, tokens, {}}}) == plain);
  }
}

TEST_CASE(
    "a node of a random tree equals its root path decoded plainly, and its cache can be kept") {
  NEEDS_GPU();
  const std::vector<Case> cases = all_cases();
  for (std::size_t seed = 0; seed < cases.size(); ++seed) {
    const Case& c = cases[seed];
    CAPTURE(std::string(name_of(c.precision)));
    const RandomModel random(c.spec);
    const auto model = build(random, {&c.precision, 1});
    std::mt19937 source(static_cast<unsigned>(seed));
    const Tokens prompt = random_tokens(40 + static_cast<int>(source() % 60), source);
    const int base = static_cast<int>(prompt.size());
    const Tree tree = random_tree(64, source);
    forward(*model, c.precision, {{0, 0, prompt, {}}});
    const auto saved = model->save(0, base);
    const std::vector<Row> nodes =
        forward(*model, c.precision, {{0, base, tree.tokens, tree.ancestors}});
    for (const int node : {0, 1, 17, 40, 63}) {
      CAPTURE(node);
      const std::vector<int> path = path_of(tree.ancestors[static_cast<std::size_t>(node)]);
      model->restore(1, saved);
      std::vector<Row> plain;
      for (std::size_t i = 0; i < path.size(); ++i) {
        const Rows rows{
            1, base + static_cast<int>(i), std::span(tree.tokens).subspan(path[i], 1), {}};
        plain.push_back(forward(*model, c.precision, {rows})[0]);
      }
      CHECK(plain.back() == nodes[static_cast<std::size_t>(node)]);
    }
    // The deepest of the last nodes is kept; what follows equals plain decoding.
    const std::vector<int> path = path_of(tree.ancestors[63]);
    model->compact(0, base, path);
    const Tokens next = random_tokens(1, source);
    const int end = base + static_cast<int>(path.size());
    const std::vector<Row> after =
        forward(*model, c.precision, {{0, end, next, {}}, {1, end, next, {}}});
    CHECK(after[0] == after[1]);
  }
}

TEST_CASE("a tree that grows over several forwards equals the whole tree at once") {
  NEEDS_GPU();
  for (const Case& c : all_cases()) {
    CAPTURE(std::string(name_of(c.precision)));
    const RandomModel random(c.spec);
    const auto model = build(random, {&c.precision, 1});
    std::mt19937 source(9);
    const Tokens prompt = random_tokens(37, source);
    const int base = static_cast<int>(prompt.size());
    const Tree tree = random_tree(40, source);
    forward(*model, c.precision, {{0, 0, prompt, {}}});
    const std::vector<Row> whole =
        forward(*model, c.precision, {{0, base, tree.tokens, tree.ancestors}});
    std::vector<Row> grown;
    for (int first = 0; first < 40; first += 13) {
      const int count = std::min(13, 40 - first);
      Rows rows{0, base + first, std::span(tree.tokens).subspan(first, count),
                std::span(tree.ancestors).subspan(first, count)};
      rows.trunk = base;
      for (Row& row : forward(*model, c.precision, {rows})) grown.push_back(std::move(row));
    }
    CHECK(grown == whole);
  }
}

TEST_CASE("rows of a batch equal rows alone") {
  NEEDS_GPU();
  for (const Case& c : all_cases()) {
    CAPTURE(std::string(name_of(c.precision)));
    const RandomModel random(c.spec);
    const auto model = build(random, {&c.precision, 1});
    std::mt19937 source(5);
    std::vector<Tokens> prompts, rest;
    std::vector<std::vector<Row>> alone;
    std::vector<Rows> batch;
    for (int slot = 0; slot < kSlots; ++slot) {
      prompts.push_back(random_tokens(3 + 29 * slot, source));
      rest.push_back(random_tokens(1 + slot * 3, source));
    }
    for (int slot = 0; slot < kSlots; ++slot) {
      const auto base = static_cast<int>(prompts[slot].size());
      forward(*model, c.precision, {{slot, 0, prompts[slot], {}}});
      alone.push_back(forward(*model, c.precision, {{slot, base, rest[slot], {}}}));
      batch.push_back({slot, base, rest[slot], {}});
    }
    const std::vector<Row> together = forward(*model, c.precision, batch);
    std::size_t at = 0;
    for (const std::vector<Row>& rows : alone) {
      CHECK(
          std::equal(rows.begin(), rows.end(), together.begin() + static_cast<std::ptrdiff_t>(at)));
      at += rows.size();
    }
  }
}

TEST_CASE("a row of a long context equals itself among others, however many blocks attend to it") {
  NEEDS_GPU();
  constexpr int kLength = 1100, kBase = kLength - 12;
  for (const Case& c : all_cases()) {
    CAPTURE(std::string(name_of(c.precision)));
    CAPTURE(c.spec.seed);
    const RandomModel random(c.spec);
    const auto model = make_cuda_model(random.file(), {&c.precision, 1}, 3, kLength + 40);
    std::mt19937 source(31);
    const Tokens tokens = random_tokens(kLength, source), other = random_tokens(20, source);
    // Passes of 64 rows, where each unit has one block.
    std::vector<Row> wide = forward(*model, c.precision, {{0, 0, tokens, {}}});
    wide.erase(wide.begin(), wide.begin() + kBase);
    forward(*model, c.precision, {{1, 0, std::span(tokens).first(kBase), {}}});
    std::vector<Row> narrow;
    for (int i = kBase; i < kLength; ++i) {
      const Rows rows{1, i, std::span(tokens).subspan(i, 1), {}};
      narrow.push_back(forward(*model, c.precision, {rows})[0]);
    }
    CHECK(narrow == wide);
    for (const int n : {3, 8, 12}) {
      CAPTURE(n);
      const Rows rows{1, kBase, std::span(tokens).subspan(kBase, n), {}};
      const std::vector<Row> together = forward(*model, c.precision, {rows});
      CHECK(std::equal(together.begin(), together.end(), wide.begin()));
      // Beside a short sequence.
      const std::vector<Row> beside = forward(*model, c.precision, {{2, 0, other, {}}, rows});
      CHECK(std::equal(beside.begin() + 20, beside.end(), wide.begin()));
      const std::vector<Row> few =
          forward(*model, c.precision, {{2, 0, std::span(other).first(2), {}}, rows});
      CHECK(std::equal(few.begin() + 2, few.end(), wide.begin()));
    }
    // A tree of three nodes behind the same trunk: two children of the first.
    const std::vector<uint64_t> ancestors = {1, 3, 5};
    const std::vector<Row> tree =
        forward(*model, c.precision, {{1, kBase, std::span(tokens).subspan(kBase, 3), ancestors}});
    CHECK(tree[0] == wide[0]);
    CHECK(tree[1] == wide[1]);
    CHECK(tree[2] != wide[2]);
  }
}

TEST_CASE("the logits of last rows alone equal those among all rows") {
  NEEDS_GPU();
  for (const Case& c : all_cases()) {
    const RandomModel random(c.spec);
    const auto model = build(random, {&c.precision, 1});
    CAPTURE(std::string(name_of(c.precision)));
    CAPTURE(c.spec.seed);
    std::mt19937 source(23);
    const Tokens first = random_tokens(9, source), second = random_tokens(6, source);
    const std::vector<Rows> batch{{0, 0, first, {}}, {3, 0, second, {}}};
    const std::vector<Row> all = forward(*model, c.precision, batch);
    model->forward(c.precision, batch, {LogitRows::last, 1, true, true});
    for (const std::size_t sequence : {0, 1}) {
      const auto logits = model->logits(sequence);
      Row row{{logits.begin(), logits.end()}};
      row.values.push_back(model->log_sum(sequence));
      row.values.push_back(static_cast<float>(model->top(sequence)[0].token));
      CHECK(row == all[sequence == 0 ? first.size() - 1 : all.size() - 1]);
    }
  }
}

}  // namespace
}  // namespace specquant::cuda
