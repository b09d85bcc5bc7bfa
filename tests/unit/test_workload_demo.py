"""The prompt sets that come with the project, through the configuration that users get."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness.workload import load
from harness.workload.settings import CONF_FOLDER
from tests.fakes.character_tokenizer import MODEL, CharacterTokenizer

CATEGORIES = {"chat", "summarizing", "extraction", "code", "arithmetic", "rewriting"}


def workload_config(folder: Path, *overrides: str) -> dict[str, Any]:
    """Composes the `workload` group alone, as the sweep's configuration does."""
    (folder / "config.yaml").write_text(
        f"defaults: [{{workload: prod}}, _self_]\ndata: {{root: '{folder}'}}\n"
        f"hydra: {{searchpath: ['file://{CONF_FOLDER}']}}\n"
    )
    with initialize_config_dir(str(folder), version_base=None):
        config = compose("config", overrides=list(overrides))
    container = OmegaConf.to_container(config.workload, resolve=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def test_prod_is_what_it_says(tmp_path: Path) -> None:
    workload = load(workload_config(tmp_path), CharacterTokenizer(), MODEL)
    assert len(workload.prompts) >= 72
    assert workload.source["languages"]["ja"] >= 20
    assert set(workload.source["categories"]) == CATEGORIES
    assert min(workload.source["categories"].values()) >= 12
    assert workload.source["text_assumed"] is True
    assert {prompt.max_new_tokens for prompt in workload.prompts} == {64}
    assert len({prompt.token_ids for prompt in workload.prompts}) == len(workload.prompts)


def demo_rows(name: str) -> list[dict[str, Any]]:
    text = (CONF_FOLDER / "workload" / "data" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_prod_has_every_category_in_both_languages() -> None:
    found = Counter((row["category"], row["language"]) for row in demo_rows("prod.jsonl"))
    assert set(found) == {(category, tongue) for category in CATEGORIES for tongue in ("en", "ja")}
    assert min(found.values()) >= 4


def test_smoke_is_a_part_of_prod(tmp_path: Path) -> None:
    smoke = load(workload_config(tmp_path, "workload=smoke"), CharacterTokenizer(), MODEL)
    prod = {row["id"]: row for row in demo_rows("prod.jsonl")}
    assert (smoke.name, len(smoke.prompts)) == ("smoke", 8)
    assert all(prod[row["id"]] == row for row in demo_rows("smoke.jsonl"))


def test_the_pool_fills_long_contexts(tmp_path: Path) -> None:
    workload = load(workload_config(tmp_path), CharacterTokenizer(), MODEL)
    draw = workload.draw(0, 2, 3000, seed=1)
    assert {len(prompt.token_ids) for prompt in draw.prompts} == {3000}
    assert not draw.pool_repeats


def test_own_traffic_replaces_the_demo(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"prompt": "hello"}\n')
    for group in ("prod", "path"):
        config = workload_config(
            tmp_path, f"workload={group}", "workload.path=mine.jsonl", "workload.name=mine"
        )
        workload = load(config, CharacterTokenizer(), MODEL)
        assert (workload.name, len(workload.prompts)) == ("mine", 1)
        assert workload.source["text_assumed"] is False
        assert workload.source["pool_text_assumed"] is True


@pytest.mark.parametrize(("group", "rows"), [("gsm8k", 1319), ("spec_bench", 480)])
def test_public_data_sets_where_they_are(tmp_path: Path, group: str, rows: int) -> None:
    config = workload_config(tmp_path, f"workload={group}")
    assert config["root"] == str(tmp_path)
    assert config["text_assumed"] is True
    folder = Path(__file__).resolve().parents[3] / "shared" / "data"
    if not (folder / str(config["path"])).is_file():
        pytest.skip(f"{config['path']} is not in the shared data folder")
    config["root"] = str(folder)
    model = {**MODEL, "max_position": 100_000, "vocab_size": 1_200_000}
    assert len(load(config, CharacterTokenizer(), model).prompts) == rows
