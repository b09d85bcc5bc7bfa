// Fake models of every part that a method can have, and the methods that use them.
#pragma once

#include <map>
#include <string>

#include "decode/method.h"
#include "tests/decode_jobs.h"
#include "tests/fake_model.h"

namespace specquant::test {

// A target and its drafters: d is a model, h a head, r a head of three taps and a reduced
// vocabulary, m the model in the middle of a cascade and n its head.
struct Cast {
  FakeModel target, d, h, r, m, n;

  explicit Cast(const FakeOptions& options)
      : target(options),
        d(options),
        h(with(options, {kFakeLayers}, 0)),
        r(with(options, {0, 2, 4}, 8)),
        m(options),
        n(with(options, {kFakeLayers}, 0)) {}

  static FakeOptions with(FakeOptions options, std::vector<int> taps, int reduced) {
    options.taps = std::move(taps);
    options.reduced = reduced;
    return options;
  }
  std::map<std::string, LoadedDrafter> drafters() {
    return {{"d", {d, {}}},
            {"h", {h, {kFakeLayers}}},
            {"r", {r, {0, 2, 4}}},
            {"m", {m, {}}},
            {"n", {n, {kFakeLayers}}}};
  }
  int misplaced() const {
    return target.misplaced + d.misplaced + h.misplaced + r.misplaced + m.misplaced + n.misplaced;
  }
};

inline constexpr const char* kTree = R"({"kind": "tree", "depth": 4, "top_k": 3, "nodes": 9})";
inline constexpr const char* kChain = R"({"kind": "chain", "gamma": 4})";

inline std::string drafter(const std::string& kind, const std::string& id) {
  return R"({"kind": ")" + kind + R"(", "id": ")" + id + R"(", "precision": "w4a4"})";
}
inline std::string cascade(const std::string& inner, const std::string& inner_shape) {
  return R"({"kind": "cascade", "id": "m", "precision": "w4a16", "inner": )" + inner +
         R"(, "inner_shape": )" + inner_shape + "}";
}
inline std::string speculative_text(const std::string& drafter, const std::string& shape) {
  return R"({"precision": "fp16", "drafter": )" + drafter + R"(, "shape": )" + shape + "}";
}
inline Method speculative(const std::string& drafter, const std::string& shape) {
  return method_of(speculative_text(drafter, shape));
}

inline constexpr const char* kSelf = R"({"kind": "self", "precision": "w4a4"})";
inline constexpr const char* kNgram = R"({"kind": "ngram"})";

}  // namespace specquant::test
