// The CUDA model against a float64 Llama and against itself. Skipped, with the reason, without a
// GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "tests/cuda_parts.h"
#include "tests/reference_model.h"

namespace specquant::cuda {
namespace {

using cpu::ActivationKind;
using cpu::WeightKind;
using cpu::reference::RandomModel;
using cpu::reference::RandomModelSpec;
using cpu::reference::Rounding;
using test::forward;
using test::random_tokens;
using test::Row;

const Want kAllLogits{LogitRows::all, 1, true, true};
constexpr int kContext = 320;
constexpr int kSlots = 9;

using Tokens = std::vector<int32_t>;

RandomModelSpec spec_of(ModelShape shape, WeightKind layers, WeightKind head, int group,
                        unsigned seed) {
  RandomModelSpec spec;
  spec.shape = shape;
  spec.layer_kind = layers;
  spec.head_kind = head;
  spec.group = group;
  spec.seed = seed;
  return spec;
}

// Groups of 64, three query heads for a key-value head, 192 columns (no whole stage), a 4-bit head.
RandomModelSpec narrow_spec() {
  return spec_of({192, 256, 2, 3, 1, 64, 300, 512, 100000.0F, 1e-5F, false}, WeightKind::affine4,
                 WeightKind::affine4, 64, 2);
}
// Groups of 128 and heads of 128, parts of several stages, a tied 8-bit head in groups of 32.
RandomModelSpec wide_spec() {
  return spec_of({512, 2048, 2, 4, 2, 128, 300, 512, 10000.0F, 1e-5F, true}, WeightKind::affine4,
                 WeightKind::affine8, 128, 3);
}
RandomModelSpec eight_bit_spec() {
  RandomModelSpec spec = narrow_spec();
  spec.layer_kind = spec.head_kind = WeightKind::affine8;
  spec.group = 32;
  return spec;
}

std::unique_ptr<Model> build(const RandomModel& random, std::span<const Precision> precisions) {
  return make_cuda_model(random.file(), precisions, kSlots, kContext);
}

// Relative errors (Euclidean norms) of the rows of one sequence, rising.
std::vector<double> errors(const RandomModel& random, Precision precision,
                           const Rounding& rounding) {
  const Precision precisions[] = {precision};
  const auto model = build(random, precisions);
  std::mt19937 source(7);
  const Tokens tokens = random_tokens(40, source);
  const Rows rows{0, 0, tokens, {}};
  model->forward(precision, {&rows, 1}, kAllLogits);
  const auto want = reference_outputs(random, tokens, rounding).logits;
  std::vector<double> found;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    double difference = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < want[row].size(); ++i) {
      const double off = model->logits(row)[i] - want[row][i];
      difference += off * off;
      norm += want[row][i] * want[row][i];
    }
    found.push_back(std::sqrt(difference / norm));
  }
  std::ranges::sort(found);
  return found;
}

TEST_CASE("logits of 16-bit activations stay close to unrounded float64") {
  NEEDS_GPU();
  for (const RandomModelSpec& spec : {narrow_spec(), wide_spec()}) {
    const RandomModel random(spec);
    CAPTURE(spec.seed);
    // The median: in single rows of random weights a rounding error decides which key wins, on the
    // CPU too.
    const auto median = [&](Precision precision) { return errors(random, precision, {})[20]; };
    CHECK(median(Precision::fp16) < 2e-3);
    CHECK(median(Precision::w4a16) < 2e-3);
    CHECK(median(Precision::bf16) < 1.5e-2);
  }
}

// Attention rounds queries and weights to f16, so values near the edge between two codes flip more
// often than on the CPU. Most rows must still be far closer to the reference that rounds alike than
// to the one that does not.
void check_rounded(const RandomModelSpec& spec, Precision precision, const Rounding& rounding,
                   double limit) {
  const RandomModel random(spec);
  CAPTURE(std::string(name_of(precision)));
  CAPTURE(spec.seed);
  const std::vector<double> alike = errors(random, precision, rounding);
  const std::vector<double> unrounded = errors(random, precision, {});
  CHECK(alike[alike.size() / 2] < limit);
  CHECK(unrounded[unrounded.size() / 2] > 1.5 * alike[alike.size() / 2]);
}

TEST_CASE("logits of 8- and 4-bit activations follow a reference with the same rounding") {
  NEEDS_GPU();
  using A = ActivationKind;
  const auto rounding = [](A layers, A head) {
    Rounding r;
    r.layer_input = layers;
    r.head_input = head;
    r.kv_f16 = r.stored_f16 = true;
    return r;
  };
  for (const RandomModelSpec& spec : {narrow_spec(), wide_spec()}) {
    check_rounded(spec, Precision::w4a8, rounding(A::i8, A::i8), 6e-3);
    check_rounded(spec, Precision::w4a4, rounding(A::u4, A::f32), 0.1);
  }
  check_rounded(eight_bit_spec(), Precision::w8a8, rounding(A::i8, A::i8), 0.025);
}

std::vector<Row> one_by_one(Model& model, Precision precision, int slot, const Tokens& tokens) {
  std::vector<Row> out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Rows rows{slot, static_cast<int>(i), std::span(tokens).subspan(i, 1), {}};
    out.push_back(forward(model, precision, {rows})[0]);
  }
  return out;
}

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

struct Tree {
  Tokens tokens;
  std::vector<uint64_t> ancestors;
};

// Every node's parent is any earlier node, or the last cached token.
Tree random_tree(int nodes, std::mt19937& random) {
  Tree tree{random_tokens(nodes, random), {}};
  for (int i = 0; i < nodes; ++i) {
    const auto parent = static_cast<int>(random() % (i + 1)) - 1;
    const uint64_t above = parent < 0 ? 0 : tree.ancestors[static_cast<std::size_t>(parent)];
    tree.ancestors.push_back(above | uint64_t{1} << i);
  }
  return tree;
}

std::vector<int> path_of(uint64_t ancestors) {
  std::vector<int> path;
  for (int i = 0; i < 64; ++i) {
    if ((ancestors >> i & 1) != 0) path.push_back(i);
  }
  return path;
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

TEST_CASE("top-k and log-sum agree with the whole row of logits") {
  NEEDS_GPU();
  const RandomModel random(narrow_spec());
  const Precision precisions[] = {Precision::w4a16};
  const auto model = build(random, precisions);
  std::mt19937 source(5);
  const Tokens tokens = random_tokens(70, source);
  const Rows rows{0, 0, tokens, {}};
  for (const int k : {1, 7, 32, 50, 300}) {
    model->forward(Precision::w4a16, {&rows, 1}, {LogitRows::all, k, true, true});
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const auto logits = model->logits(row);
      REQUIRE(logits.size() == 300);
      std::vector<int> order(300);
      for (int i = 0; i < 300; ++i) order[i] = i;
      std::ranges::stable_sort(order, [&](int a, int b) { return logits[a] > logits[b]; });
      double total = 0.0;
      for (const float logit : logits) total += std::exp(static_cast<double>(logit));
      for (int i = 0; i < k; ++i) {
        CHECK(model->top(row)[i].token == order[i]);
        CHECK(model->top(row)[i].logit == logits[order[i]]);
      }
      CHECK(model->log_sum(row) == doctest::Approx(std::log(total)).epsilon(1e-5));
    }
  }
}

TEST_CASE("bad requests are refused before anything is written") {
  NEEDS_GPU();
  const RandomModel random(narrow_spec());
  const Precision precisions[] = {Precision::w4a16};
  const auto model = build(random, precisions);
  const Tokens tokens{1, 2};
  const auto ask = [&](Precision precision, Rows rows, Want want) {
    model->forward(precision, {&rows, 1}, want);
  };
  CHECK_THROWS_AS(ask(Precision::fp16, {0, 0, tokens, {}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(ask(Precision::w4a16, {kSlots, 0, tokens, {}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(ask(Precision::w4a16, {0, kContext, tokens, {}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(ask(Precision::w4a16, {0, 0, tokens, {}}, {LogitRows::all, 301, false, false}),
                  std::invalid_argument);
  const Precision eight[] = {Precision::w8a8};
  CHECK_THROWS_AS(build(random, eight), core::Error);
  const int tap = random.shape().layers + 2;
  Want taps;
  taps.taps = {&tap, 1};
  CHECK_THROWS_AS(ask(Precision::w4a16, {0, 0, tokens, {}}, taps), std::invalid_argument);
  CHECK_THROWS_AS(make_cuda_model(random.file(), precisions, 1, 1 << 30), std::exception);
}

}  // namespace
}  // namespace specquant::cuda
