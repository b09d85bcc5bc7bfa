"""Published layouts, packed and drafted with by the native engine, against their authors' code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.client import Worker
from backends.pack.head_import import pack_head
from backends.pack.hf_import import pack_checkpoint
from backends.protocol import read_trace
from tests.fakes.draft_head import DIMENSIONS, DRAFT_VOCAB, TAPS, draft_head
from tests.fakes.tiny_checkpoint import VOCAB, tiny
from tests.train.published_heads import Eagle2, Eagle3, Target, draft

# This environment has none of the packages that the table of backends needs.
ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(os.environ.get("SPECQUANT_WORKER", ROOT / "build/native/worker/specquant-worker"))
TIMEOUT_S = 60
GAMMA = 4
CASES = {
    "EAGLE-2": ("eagle2", {}),
    "EAGLE-1 with bias": ("eagle2", {"fc_bias": True}),
    "EAGLE-3": ("eagle3", {}),
    "speculators, eagle": ("speculators eagle", {}),
    "speculators, eagle3": ("speculators eagle3", {}),
    "speculators, eagle3, normed": ("speculators eagle3", {"normed": True}),
}


def load(module: Any, tensors: dict[str, Any]) -> Any:
    """The module with these weights, by their own names, in float64."""
    module.load_state_dict({name: torch.tensor(value) for name, value in tensors.items()})
    return module.double().requires_grad_(False)


def reference(layout: str, options: dict[str, bool], head: Any, target: Target) -> Any:
    if layout.endswith("eagle3"):
        layer = "midlayer" if layout == "eagle3" else "layers"
        made = Eagle3(DIMENSIONS, DRAFT_VOCAB, TAPS, layer, options.get("normed", False))
        made = load(made, head.tensors)
        made.embedding = target.model.embed_tokens
        return made
    names = ("fc", "layers") if layout == "eagle2" else ("fusion_fc", "transformer")
    return load(Eagle2(DIMENSIONS, options.get("fc_bias", False), names), head.tensors)


@pytest.mark.parametrize("name", CASES)
def test_the_engine_proposes_what_the_authors_code_proposes(tmp_path: Path, name: str) -> None:
    if not WORKER.exists():
        pytest.skip("the native worker is not built here (make native)")
    layout, options = CASES[name]
    model, head = tiny(), draft_head(layout, **options)
    pack_checkpoint(model.write(tmp_path / "target"), tmp_path / "target.sqm")
    folder = head.write(tmp_path / "head")
    if layout == "eagle2":  # published as PyTorch's own file
        (folder / "model.safetensors").unlink()
        state = {key: torch.tensor(value) for key, value in head.tensors.items()}
        torch.save(state, folder / "pytorch_model.bin")
    pack_head(folder, tmp_path / "target.sqm", tmp_path / "head.sqm")
    target = load(Target(model.config), model.tensors)
    judge = reference(layout, options, head, target)

    prompts = [torch.randint(2, VOCAB, (n,)).tolist() for n in (3, 9, 14)]
    trace = tmp_path / "trace.bin"
    with Worker([str(WORKER), "--device", "cpu"], name="native") as worker:
        worker.call(
            "load",
            timeout_s=TIMEOUT_S,
            model={"path": str(tmp_path / "target.sqm")},
            precisions=["fp16"],
            drafters=[
                {
                    "id": "head",
                    "path": str(tmp_path / "head.sqm"),
                    "precisions": ["fp16"],
                    "target": "target",
                }
            ],
            max_context=64,
            max_batch=2,
            seed=1,
        )
        answer = worker.call(
            "run",
            timeout_s=TIMEOUT_S,
            method={
                "precision": "fp16",
                "kv_precision": "kv16",
                "drafter": {"kind": "head", "id": "head", "precision": "fp16"},
                "shape": {"kind": "chain", "gamma": GAMMA},
                "acceptance": {"kind": "greedy"},
            },
            prompts=prompts,
            arrivals=None,
            batch_size=1,
            max_new_tokens=12,
            stop_ids=[],
            sampling=None,
            trace="tokens",
            trace_path=str(trace),
        )
    rows = list(read_trace(trace))
    compared = 0
    for index, request in enumerate(answer["requests"]):
        rounds = sorted({row.round for row in rows if row.request == index})
        begin = 0
        for number, committed in zip(rounds, request["round_tokens"], strict=False):
            begin += committed
            text = prompts[index] + request["tokens"][:begin]
            found = [row for row in rows if (row.request, row.round) == (index, number)]
            expected = draft(target, judge, text, [row.token_id for row in found])
            for row, (share, largest) in zip(found, expected, strict=True):
                assert row.draft_prob == pytest.approx(share, abs=0.01)
                assert share > largest - 0.01
                compared += 1
    assert compared > 40
