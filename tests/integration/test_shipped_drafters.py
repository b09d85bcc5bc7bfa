"""The drafters in the repository fit the demo model as `python -m backends.pack demo` makes it."""

from __future__ import annotations

from pathlib import Path

import yaml

from backends.pack.packed import PackedFile

ROOT = Path(__file__).resolve().parents[2]
MODEL = yaml.safe_load((ROOT / "conf" / "model" / "smollm2-135m.yaml").read_text())


def test_each_draft_head_names_the_model_that_it_is_used_with() -> None:
    drafters = MODEL["drafters"]
    paths = {"target": MODEL["path"], **{name: entry["path"] for name, entry in drafters.items()}}
    files = {name: PackedFile(ROOT / path).metadata for name, path in paths.items()}
    heads = {name: entry["target"] for name, entry in drafters.items() if "target" in entry}
    assert heads == {"head": "target", "model-head": "model"}
    for head, target in heads.items():
        assert files[head]["target"]["content_hash"] == files[target]["content_hash"], head


def test_the_draft_model_reads_the_targets_tokens() -> None:
    small = PackedFile(ROOT / MODEL["drafters"]["model"]["path"]).metadata
    target = PackedFile(ROOT / MODEL["path"]).metadata
    assert small["vocab_size"] == target["vocab_size"]
