// What a method may ask for, and how a request is refused by the key that is wrong.
#include "decode/method.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/decode_jobs.h"
#include "tests/messages.h"

namespace specquant::decode {
namespace {

using namespace test;

TEST_CASE("methods are refused with the key and the near name") {
  const auto says = [](const std::string& text, const std::string& part) {
    check_says(verdict_on_method(text), part);
  };
  says(R"({"precision": "w4a61"})",
       "bad_request: 'method.precision': Unknown precision 'w4a61'. Did you mean 'w4a16'?");
  says(R"({"precision": "fp16", "drafter": {"kind": "slef"}})", "Did you mean 'self'?");
  says(R"({"precision": "fp16", "shape": {"kind": "chian", "gamma": 2}})", "Did you mean 'chain'?");
  says(R"({"precision": "fp16", "drafter": {"kind": "head", "precision": "w4a4"}})",
       "bad_request: 'method.drafter.id' is missing");
  says(R"({"precision": "fp16", "drafter": {"kind": "model", "id": "d"}})",
       "'method.drafter.precision' is missing");
  const auto says_of_tree = [&](const std::string& tree, const std::string& part) {
    says(R"({"precision": "fp16", "drafter": {"kind": "self", "precision": "w4a4"}, "shape": )"
         R"({"kind": "tree", )" +
             tree + "}}",
         part);
  };
  says_of_tree(R"("depth": 4, "top_k": 3, "nodes": 3)",
               "'method.shape.nodes' is 3; it must be 4 to 63");
  says_of_tree(R"("depth": 4, "top_k": 3, "nodes": 64)", "'method.shape.nodes' is 64");
  says_of_tree(R"("depth": 4, "top_k": 0, "nodes": 8)", "'method.shape.top_k' is 0");
  says_of_tree(R"("depth": 0, "top_k": 1, "nodes": 8)", "'method.shape.depth' is 0");
  says_of_tree(R"("depth": 8, "top_k": 10, "nodes": 60)", "must be at most 64");
  says_of_tree(R"("depth": 7, "top_k": 10, "nodes": 60)", "accepted");
  says(R"({"precision": "fp16", "drafter": {"kind": "ngram"},
           "shape": {"kind": "tree", "depth": 2, "top_k": 2, "nodes": 4}})",
       "proposes chains only");
  const auto says_of_cascade = [&](const std::string& inner, const std::string& inner_shape,
                                   const std::string& shape, const std::string& part) {
    says(R"({"precision": "fp16", "drafter": {"kind": "cascade", "id": "m", "precision": "w4a4",)"
         R"( "inner": )" +
             inner + R"(, "inner_shape": )" + inner_shape + R"(}, "shape": )" + shape + "}",
         part);
  };
  const std::string chain = R"({"kind": "chain", "gamma": 6})";
  const std::string long_chain = R"({"kind": "chain", "gamma": 58})";
  const std::string tree = R"({"kind": "tree", "depth": 3, "top_k": 10, "nodes": 30})";
  const std::string head = R"({"kind": "head", "id": "h", "precision": "w4a4"})";
  says_of_cascade(head, tree, chain, "accepted");
  says_of_cascade(head, tree, tree, "proposes chains only");
  says_of_cascade(R"({"kind": "none"})", tree, chain, "'method.drafter.inner' must name");
  says_of_cascade(head, R"({"kind": "none"})", chain, "'method.drafter.inner_shape' must say");
  says_of_cascade(head, chain, long_chain, "at most 63");
  const auto inside = [&](const std::string& inner) {
    return R"({"kind": "cascade", "id": "m", "precision": "w4a4", "inner": )" + inner +
           R"(, "inner_shape": )" + chain + "}";
  };
  says_of_cascade(inside(head), chain, chain, "accepted");
  says_of_cascade(inside(head), tree, chain, "proposes chains only");
  says_of_cascade(inside(inside(head)), chain, chain,
                  "'method.drafter.inner.inner.kind' is 'cascade'; cascades stand at most 2 deep");
  says(R"({"precision": "fp16", "acceptance": {"kind": "sampling"}})",
       "bad_request: 'method.acceptance.kind' is 'sampling', so 'sampling' of the run");
  says(R"({"precision": "fp16", "kv_precision": "kv8"})", "unsupported: 'method.kv_precision'");
  says(R"({"precision": "fp16", "gamma": 3})", "'method' has the unknown key 'gamma'");
  says(R"({"precision": "fp16", "shape": {"kind": "chain", "gamma": 2, "top": 1}})",
       "unknown key 'top'");
  for (const char* gamma : {"0", "-1", "64", "1e3", "2.5", "\"3\"", "18446744073709551615"}) {
    says(
        R"({"precision": "fp16", "drafter": {"kind": "ngram"}, "shape": {"kind": "chain", "gamma": )" +
            std::string(gamma) + "}}",
        "bad_request: 'method.shape.gamma'");
  }
  says(R"({"precision": "fp16", "drafter": {"kind": "ngram"}})", "'method.shape'");
  says(R"({"precision": "fp16", "shape": {"kind": "chain", "gamma": 3}})", "'method.shape'");
  says(
      R"({"precision": "fp16", "drafter": {"kind": "self"}, "shape": {"kind": "chain", "gamma": 3}})",
      "'method.drafter.precision' is missing");
  says(R"({"precision": "fp16", "drafter": {"kind": "ngram", "max_ngram": 2, "min_ngram": 3}})",
       "'method.drafter.min_ngram' is 3; it must be 1 to 2");
  says(R"({"precision": "fp16"})", "accepted");
}

}  // namespace
}  // namespace specquant::decode
