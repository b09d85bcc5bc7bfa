// Shape invariance: the logits of a row are bitwise the same however it is computed.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <string>

#include "cpu/model.h"
#include "tests/packed_builder.h"

namespace specquant::cpu {
namespace {

using reference::RandomModel;

constexpr Precision kPrecisions[] = {
    Precision::fp16,          Precision::bf16,        Precision::w4a16,     Precision::w4a8,
    Precision::w4a4,          Precision::w4a4_g16,    Precision::w4a4_qkv8, Precision::w4a4_od8,
    Precision::w4a4_g16_qkv8, Precision::w4a4_g16_od8};
constexpr int kVocabulary = 300;
constexpr int kContext = 256;
constexpr int kSlots = 9;
constexpr int kTaps[] = {3, 0, 1, 2};  // of two layers
const Want kAllLogits{LogitRows::all, 1, true, true, kTaps};

using Tokens = std::vector<int32_t>;

// What is compared: a row's logits, log-sum, best token and features, as bits.
struct Row {
  std::vector<float> values;
  bool operator==(const Row& other) const {
    return values.size() == other.values.size() &&
           std::memcmp(values.data(), other.values.data(), values.size() * sizeof(float)) == 0;
  }
};

Row result(const Model& model, std::size_t row) {
  const auto logits = model.logits(row);
  Row out{{logits.begin(), logits.end()}};
  out.values.push_back(model.log_sum(row));
  out.values.push_back(static_cast<float>(model.top(row)[0].token));
  const auto features = model.features(row);
  out.values.insert(out.values.end(), features.begin(), features.end());
  return out;
}

std::vector<Row> forward(Model& model, Precision precision, const std::vector<Rows>& batch) {
  model.forward(precision, batch, kAllLogits);
  std::size_t count = 0;
  for (const Rows& rows : batch) count += rows.tokens.size();
  std::vector<Row> out;
  for (std::size_t row = 0; row < count; ++row) out.push_back(result(model, row));
  return out;
}

std::vector<Row> one_by_one(Model& model, Precision precision, int slot, const Tokens& tokens) {
  std::vector<Row> out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Rows rows{slot, static_cast<int>(i), std::span(tokens).subspan(i, 1), {}};
    out.push_back(forward(model, precision, {rows})[0]);
  }
  return out;
}

Tokens random_tokens(int count, std::mt19937& random) {
  Tokens tokens(static_cast<std::size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % kVocabulary);
  return tokens;
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

std::unique_ptr<CpuModel> build(const RandomModel& random, int threads,
                                const KernelTable& table = kernels()) {
  return std::make_unique<CpuModel>(random.file(), kPrecisions, kSlots, kContext,
                                    std::make_shared<ThreadPool>(threads), table);
}

// The first `length` keys and values of a slot.
std::vector<uint16_t> cached(CpuModel& model, int slot, int length) {
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

TEST_CASE("a node of a random tree equals its root path decoded plainly") {
  const RandomModel random(reference::small_spec());
  const auto model = build(random, 2);
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 source(seed);
    const Precision precision = kPrecisions[seed % std::size(kPrecisions)];
    const Tokens prompt = random_tokens(1 + static_cast<int>(source() % 40), source);
    const int base = static_cast<int>(prompt.size());
    const int nodes = seed == 0 ? 64 : 2 + static_cast<int>(source() % 63);
    const Tree tree = random_tree(nodes, source);
    forward(*model, precision, {{0, 0, prompt, {}}});
    const std::vector<Row> together =
        forward(*model, precision, {{0, base, tree.tokens, tree.ancestors}});
    for (int node = 0; node < nodes; ++node) {
      CAPTURE(node);
      Tokens alone = prompt;
      for (const int step : path_of(tree.ancestors[node])) alone.push_back(tree.tokens[step]);
      forward(*model, precision, {{1, 0, std::span(alone).first(alone.size() - 1), {}}});
      const Rows last{1, static_cast<int>(alone.size()) - 1, std::span(alone).last(1), {}};
      CHECK(forward(*model, precision, {last})[0] == together[node]);
    }
    // Keeping the path of the last node leaves the cache as plain decoding would.
    const std::vector<int> path = path_of(tree.ancestors.back());
    model->compact(0, base, path);
    const int length = base + static_cast<int>(path.size());
    CHECK(cached(*model, 0, length) == cached(*model, 1, length));
  }
}

// The tree's rows in levels: a level's rows have their parents in earlier ones. Bits follow the new
// order.
Tree by_levels(const Tree& tree, std::vector<int>& level_ends) {
  const auto nodes = static_cast<int>(tree.tokens.size());
  std::vector<int> order(static_cast<std::size_t>(nodes)), place(order.size());
  for (int i = 0; i < nodes; ++i) order[i] = i;
  const auto depth = [&](int node) { return std::popcount(tree.ancestors[node]); };
  std::ranges::stable_sort(order, {}, depth);
  for (int i = 0; i < nodes; ++i) place[order[i]] = i;
  Tree sorted;
  for (int i = 0; i < nodes; ++i) {
    uint64_t word = 0;
    for (const int step : path_of(tree.ancestors[order[i]])) word |= uint64_t{1} << place[step];
    sorted.tokens.push_back(tree.tokens[order[i]]);
    sorted.ancestors.push_back(word);
    if (i + 1 == nodes || depth(order[i + 1]) != depth(order[i])) level_ends.push_back(i + 1);
  }
  return sorted;
}

TEST_CASE("a tree grown level by level in the cache equals the same tree in one forward") {
  const RandomModel random(reference::small_spec());
  const auto model = build(random, 2);
  for (unsigned seed = 0; seed < 15; ++seed) {
    CAPTURE(seed);
    std::mt19937 source(200 + seed);
    const Precision precision = kPrecisions[seed % std::size(kPrecisions)];
    const Tokens prompt = random_tokens(1 + static_cast<int>(source() % 40), source);
    const int base = static_cast<int>(prompt.size());
    const int nodes = seed < 5 ? 64 : 2 + static_cast<int>(source() % 63);
    std::vector<int> ends;
    const Tree tree = by_levels(random_tree(nodes, source), ends);
    for (const int slot : {0, 1}) forward(*model, precision, {{slot, 0, prompt, {}}});
    const std::vector<Row> together =
        forward(*model, precision, {{0, base, tree.tokens, tree.ancestors}});
    std::vector<Row> grown;
    int begin = 0;
    for (const int end : ends) {
      const auto part = [&](const auto& all) {
        return std::span(all).subspan(static_cast<std::size_t>(begin),
                                      static_cast<std::size_t>(end - begin));
      };
      const Rows rows{1, base + begin, part(tree.tokens), part(tree.ancestors), base};
      // Every second level shares its forward with another sequence.
      std::vector<Rows> batch{rows};
      if (grown.size() % 2 == 1) batch.push_back({2, 0, prompt, {}});
      std::vector<Row> level = forward(*model, precision, batch);
      grown.insert(grown.end(), level.begin(), level.begin() + (end - begin));
      begin = end;
    }
    CHECK(grown == together);
    CHECK(cached(*model, 1, base + nodes) == cached(*model, 0, base + nodes));
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
