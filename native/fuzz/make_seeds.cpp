// Writes the inputs that the fuzzers start from: make_seeds FOLDER.
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/packed_parts.h"

namespace {

void write(const std::filesystem::path& folder, const std::string& name, const std::string& text) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path root = argv[1];
  const specquant::test::PackedParts parts;
  write(root / "packed_file", "file", '\0' + parts.bytes());
  write(root / "packed_file", "framed", '\1' + parts.metadata.dump() + '\0' + parts.tensors.dump());
  write(root / "protocol", "hello", R"({"id": 1, "call": "hello"})");
  write(root / "protocol", "load",
        R"({"id": 1, "call": "load", "model": {"path": "none"}, "precisions": ["fp16", "w4a4"],
            "drafters": [], "max_context": 64, "max_batch": 4, "seed": 1})");
  write(root / "protocol", "run",
        R"({"id": 2, "call": "run", "method": {"precision": "fp16", "kv_precision": "kv16",
            "drafter": {"kind": "self", "precision": "w4a4"}, "shape": {"kind": "chain", "gamma": 3},
            "acceptance": {"kind": "greedy"}}, "prompts": [[1, 2], [3]], "arrivals": [0, 0.5],
            "batch_size": 2, "max_new_tokens": [5, 6], "stop_ids": [4], "sampling": null,
            "share_prefill": true, "prefill_cache": {"clear": true}, "trace": "tokens",
            "trace_path": "none"})");
  write(root / "protocol", "ngram",
        R"({"id": 2, "call": "run", "method": {"precision": "fp16", "drafter": {"kind": "ngram",
            "max_ngram": 3, "min_ngram": 1}, "shape": {"kind": "chain", "gamma": 3}},
            "prompts": [[1]], "max_new_tokens": 5})");
  write(root / "protocol", "cascade",
        R"({"id": 2, "call": "run", "method": {"precision": "fp16", "drafter": {"kind": "cascade",
            "id": "d", "precision": "w4a4", "inner": {"kind": "self", "precision": "w4a4"},
            "inner_shape": {"kind": "tree", "depth": 2, "top_k": 2, "nodes": 4}},
            "shape": {"kind": "chain", "gamma": 3}}, "prompts": [[1]], "max_new_tokens": 5})");
  write(root / "protocol", "head",
        R"({"id": 2, "call": "run", "method": {"precision": "fp16", "drafter": {"kind": "head",
            "id": "h", "precision": "w4a4"}, "shape": {"kind": "tree", "depth": 2, "top_k": 2,
            "nodes": 4}}, "prompts": [[1]], "max_new_tokens": 5})");
  write(root / "protocol", "drafters",
        R"({"id": 1, "call": "load", "model": {"path": "none"}, "precisions": ["fp16"],
            "drafters": [{"id": "d", "path": "none", "precisions": ["w4a4"], "target": "target"}],
            "max_context": 64, "max_batch": 4})");
  write(root / "protocol", "forward",
        R"({"id": 3, "call": "forward", "model": "target", "precision": "w4a4", "tokens": [1, 2, 4],
            "mask": "tree", "context": 8, "batch": 1, "repeats": 2})");
  write(
      root / "protocol", "score",
      R"({"id": 4, "call": "score", "sequences": [[1, 2]], "precision": "fp16", "reference": null})");
  return 0;
}
