"""Drafters with weights of their own: what is opened, and what is refused before any timing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import model_file
from harness.drafter_files import DrafterFile, read_drafter_settings, read_drafters
from harness.errors import ConfigError
from harness.methods import Method, expand
from harness.workers import LoadedDrafter, LoadSpec, union
from tests.fakes.model import tokenizer_json, write_model

MODEL = {"kind": "model", "id": "small", "precision": "w4a8"}
HEAD = {"kind": "head", "id": "head", "precision": "fp16"}
CHAIN = {"kind": "chain", "gamma": 2}


def method(drafter: Any) -> Method:
    entries: list[dict[str, Any]] = [
        {"precision": "fp16"}, {"precision": "fp16", "drafter": drafter, "shape": CHAIN},
    ]  # fmt: skip
    return expand(
        entries, draft_lengths=[3], precisions=["fp16"], baseline="fp16", backends=["native"]
    )[1]


class World:
    """A target, a small model and heads in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.target = model_file.read(write_model(path / "target.sqm"))
        self.settings: dict[str, Any] = {}

    def add(self, name: str, reads: str = "target", **metadata: Any) -> None:
        path = write_model(self.path / f"{name}.sqm", name=name, **metadata)
        self.settings[name] = {"path": str(path), "target": reads}

    def add_head(self, name: str, of: str, content_hash: str) -> None:
        self.add(name, of, architecture="eagle3", target={"content_hash": content_hash})

    def read(self, *drafters: Any) -> dict[str, DrafterFile]:
        settings = read_drafter_settings(self.settings)
        return read_drafters(settings, [method(drafter) for drafter in drafters], self.target)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.add("small")
    made.add_head("head", "target", made.target.content_hash)
    return made


def test_only_used_drafters_are_opened(world: World) -> None:
    world.settings["absent"] = {"path": "nowhere.sqm"}
    found = world.read(MODEL, HEAD)
    assert sorted(found) == ["head", "small"]
    assert found["small"].request() == {"id": "small", "path": str(world.path / "small.sqm")}
    assert found["head"].request()["target"] == "target"
    with pytest.raises(ConfigError, match=r"model\.drafters\.absent: .*nowhere\.sqm does not"):
        world.read({**MODEL, "id": "absent"})


def test_an_unknown_id_is_answered_with_the_near_ones(world: World) -> None:
    with pytest.raises(ConfigError, match=r"'smal'.*Did you mean small"):
        world.read({**MODEL, "id": "smal"})


def test_another_vocabulary_is_refused(world: World) -> None:
    world.add("small", vocab_size=300)
    with pytest.raises(ConfigError, match=r"drafters\.small: .*300 tokens, and Fake-1M has 256"):
        world.read(MODEL)


def test_another_tokenizer_is_refused_and_another_spelling_of_the_same_is_not(world: World) -> None:
    world.add("small", tokenizer=json.dumps(json.loads(tokenizer_json()), indent=1))
    assert world.read(MODEL)
    world.add("small", tokenizer=tokenizer_json().replace('"A":', '"AA":'))
    with pytest.raises(ConfigError, match=r"drafters\.small: .*another tokenizer"):
        world.read(MODEL)


def test_a_head_of_another_target_is_refused(world: World) -> None:
    world.add_head("head", "target", "0" * 64)
    with pytest.raises(ConfigError, match=r"drafters\.head: .*trained for another target.*000000"):
        world.read(HEAD)


def test_a_head_drafts_for_the_model_that_it_reads(world: World) -> None:
    small = world.read(MODEL)["small"]
    world.add_head("own", "small", small.content_hash)
    inner = {**HEAD, "id": "own"}
    cascade = {"kind": "cascade", "id": "small", "precision": "w4a8", "inner": inner,
               "inner_shape": CHAIN}  # fmt: skip
    assert sorted(world.read(cascade)) == ["own", "small"]
    with pytest.raises(ConfigError, match=r"reads the hidden states of 'small'"):
        world.read(inner)
    with pytest.raises(ConfigError, match=r"reads the hidden states of 'target'"):
        world.read({**cascade, "inner": HEAD})


def test_a_head_is_no_model_and_a_model_no_head(world: World) -> None:
    with pytest.raises(ConfigError, match=r"head\.sqm is a draft head.*Write `kind: head`"):
        world.read({**MODEL, "id": "head"})
    with pytest.raises(ConfigError, match=r"small\.sqm is a whole model.*Write `kind: model`"):
        world.read({**HEAD, "id": "small"})


SHAPE: dict[str, Any] = {
    "name": "made up", "seed": 1, "hidden_size": 64, "intermediate_size": 96, "num_layers": 1,
    "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "vocab_size": 256, "max_position": 512,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tied_head": False,
}  # fmt: skip


def made_head(world: World, **changes: Any) -> dict[str, Any]:
    """A head without a file for the target of `world`."""
    shape = world.target.metadata
    target = {
        "hidden_size": shape["hidden_size"], "num_layers": shape["num_layers"], "taps": [0, 1],
    }  # fmt: skip
    head = {"architecture": "eagle3", "target": target, "draft_vocab_size": 100}
    return {**SHAPE, **head, **changes}


def test_a_synthetic_drafter_has_the_hash_of_its_shape(world: World) -> None:
    world.settings["made"] = {"synthetic": SHAPE}
    found = world.read({**MODEL, "id": "made"})["made"]
    assert found.metadata is None
    assert found.request() == {"id": "made", "synthetic": SHAPE}
    before = found.content_hash
    world.settings["made"] = {"synthetic": {**SHAPE, "seed": 2}}
    assert world.read({**MODEL, "id": "made"})["made"].content_hash != before


def test_a_synthetic_head_drafts_for_a_model_of_the_shape_that_it_names(world: World) -> None:
    head = made_head(world)
    world.settings["made"] = {"synthetic": head}
    found = world.read({**HEAD, "id": "made"})["made"]
    assert found.request() == {"id": "made", "synthetic": head, "target": "target"}
    with pytest.raises(ConfigError, match=r"its synthetic shape is a draft head.*`kind: head`"):
        world.read({**MODEL, "id": "made"})
    for key in ("hidden_size", "num_layers"):
        target = {**head["target"], key: head["target"][key] + 1, "taps": [0]}
        world.settings["made"] = {"synthetic": {**head, "target": target}}
        with pytest.raises(ConfigError, match=rf"drafters\.made\.synthetic\.target\.{key}="):
            world.read({**HEAD, "id": "made"})


def test_a_synthetic_head_under_a_cascade_fits_the_model_in_the_middle(world: World) -> None:
    world.settings["middle"] = {"synthetic": {**SHAPE, "hidden_size": 32, "num_layers": 3}}
    head = made_head(world, target={"hidden_size": 32, "num_layers": 3, "taps": [4]})
    world.settings["made"] = {"synthetic": head, "target": "middle"}
    tree = {"kind": "tree", "depth": 2, "top_k": 2, "nodes": 3}
    cascade = {
        "kind": "cascade", "id": "middle", "precision": "w4a8",
        "inner": {**HEAD, "id": "made"}, "inner_shape": tree,
    }  # fmt: skip
    assert world.read(cascade)["made"].request()["target"] == "middle"
    head["target"]["num_layers"] = 2
    with pytest.raises(ConfigError, match=r"target\.taps=\[4\]: this lists .* from 0 to 3"):
        world.read(cascade)
    head["target"]["taps"] = [0]
    with pytest.raises(ConfigError, match=r"target\.num_layers=2: middle has 3"):
        world.read(cascade)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"architecture": "eagle2"}, r"\.architecture=eagle2: .* are eagle3"),
        ({"draft_vocab_size": 0}, r"draft_vocab_size=0: .* from 1 to vocab_size"),
        ({"draft_vocab_size": 257}, "draft_vocab_size=257"),
        ({"draft_vocab": 3}, "Did you mean draft_vocab_size"),
        ({"num_heads": 0}, r"\.num_heads=0: this is a whole number"),
        ({"target": None}, r"\.target: a head names here what it reads"),
        ({"target": {"hidden_size": 64, "num_layers": 2}}, r"target\.taps is missing"),
        ({"target": {"hidden_size": 64, "num_layers": 2, "taps": []}}, r"target\.taps=\[\]"),
        ({"target": {"hidden_size": 64, "num_layers": 2, "taps": [1], "x": 1}}, "x"),
        ({"target": {"hidden_size": "a", "num_layers": 2, "taps": [1]}}, "hidden_size=a"),
    ],
)
def test_a_wrong_synthetic_head_is_refused_by_its_key(
    world: World, changes: dict[str, Any], part: str
) -> None:
    with pytest.raises(ConfigError, match=rf"model\.drafters\.x\.synthetic.*{part}"):
        read_drafter_settings({"x": {"synthetic": made_head(world, **changes)}})


def test_a_wrong_synthetic_model_is_refused_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"drafters\.x\.synthetic: this is a shape"):
        read_drafter_settings({"x": {"synthetic": 3}})
    less = {key: value for key, value in SHAPE.items() if key != "head_dim"}
    with pytest.raises(ConfigError, match=r"drafters\.x\.synthetic\.head_dim is missing"):
        read_drafter_settings({"x": {"synthetic": less}})
    with pytest.raises(ConfigError, match=r"drafters\.x\.synthetic.*taps"):
        read_drafter_settings({"x": {"synthetic": {**SHAPE, "taps": [1]}}})


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({}, "either a `path` or a `synthetic`"),
        ({"path": "a", "synthetic": {}}, "either a `path` or a `synthetic`"),
        ({"path": "a", "taget": "x"}, "Did you mean target"),
    ],
)
def test_a_wrong_entry_is_named(entry: Any, part: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.drafters\.x.*{part}"):
        read_drafter_settings({"x": entry})
    with pytest.raises(ConfigError, match="stands for the target"):
        read_drafter_settings({"target": {"path": "a"}})


def test_a_worker_that_holds_a_drafter_at_more_precisions_serves_fewer(world: World) -> None:
    file = world.read(MODEL)["small"]

    def spec(*precisions: str) -> LoadSpec:
        drafters = (LoadedDrafter(file, frozenset(precisions)),) if precisions else ()
        return LoadSpec({"path": "m"}, frozenset({"fp16"}), 100, 1, 0, drafters)

    both = union([spec(), spec("w4a8"), spec("fp16")])
    assert both == spec("w4a8", "fp16")
    assert both.covers(spec("fp16"))
    assert both.covers(spec())
    assert not spec("fp16").covers(both)
    assert not spec().covers(spec("fp16"))
    (drafter,) = both.request()["drafters"]
    assert drafter["precisions"] == ["fp16", "w4a8"]
