"""The vLLM backend without vLLM: its checkpoints, its proof of precision, its loop over steps."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from backends.protocol import RequestError
from backends.vllm_checkpoint import checkpoint_of, hf_config, linear_weights
from backends.vllm_proof import Weights, refuse_other_precision
from backends.vllm_run import Start, Step, decode_stepping

SHAPE = {
    "name": "made up", "seed": 3, "hidden_size": 64, "intermediate_size": 96, "num_layers": 2,
    "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "vocab_size": 100, "max_position": 512,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tied_head": False,
}  # fmt: skip


def test_a_synthetic_model_is_a_folder_with_a_config_alone() -> None:
    checkpoint = checkpoint_of({"synthetic": SHAPE}, "w4a16")
    assert checkpoint.synthetic
    assert [path.name for path in checkpoint.folder.iterdir()] == ["config.json"]
    config = json.loads((checkpoint.folder / "config.json").read_text())
    assert config["num_key_value_heads"] == 2
    quantization = config["quantization_config"]
    assert quantization["quant_method"] == "compressed-tensors"
    assert quantization["config_groups"]["group_0"]["weights"]["num_bits"] == 4


def test_equal_synthetic_models_are_one_folder_for_vllms_compile_cache() -> None:
    folder = checkpoint_of({"synthetic": SHAPE}, "w4a16").folder
    assert checkpoint_of({"synthetic": SHAPE}, "w4a16").folder == folder
    assert checkpoint_of({"synthetic": SHAPE}, "fp16").folder != folder
    assert checkpoint_of({"synthetic": {**SHAPE, "num_layers": 3}}, "w4a16").folder != folder


def test_sixteen_bit_precisions_name_no_quantization() -> None:
    assert "quantization_config" not in hf_config(SHAPE, "fp16")
    assert hf_config(SHAPE, "bf16")["torch_dtype"] == "bfloat16"


def test_what_a_packed_file_says_of_its_architecture_reaches_vllm() -> None:
    scaling = {"type": "linear", "factor": 4.0}
    config = hf_config(
        {**SHAPE, "rope_scaling": scaling, "tensors": {"layers.0.qkv_bias": {}}}, "fp16"
    )
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert config["rope_parameters"] == {
        "rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0,
    }  # fmt: skip


def test_weights_of_the_layers_are_counted() -> None:
    # qkv 64·(64 + 2·32), o 64·64, gate, up and down 3·64·96; two layers.
    assert linear_weights(SHAPE) == 2 * (64 * 128 + 64 * 64 + 3 * 64 * 96)


def weights(a_weight: float) -> Weights:
    """Weights of SHAPE's layers that take `a_weight` bytes each."""
    return Weights({}, int(a_weight * linear_weights(SHAPE)), 0, ["Kernel"])


@pytest.mark.parametrize(("precision", "a_weight"), [("w4a16", 2.0), ("fp16", 0.53)])
def test_bytes_of_another_precision_are_refused(precision: str, a_weight: float) -> None:
    with pytest.raises(RequestError, match=f"asked for {precision} and loaded {a_weight:.2f}"):
        refuse_other_precision(weights(a_weight), linear_weights(SHAPE), precision)


@pytest.mark.parametrize(("precision", "a_weight"), [("w4a16", 0.516), ("w4a8", 0.53), ("bf16", 2)])
def test_bytes_of_the_precision_pass(precision: str, a_weight: float) -> None:
    refuse_other_precision(weights(a_weight), linear_weights(SHAPE), precision)


class Scripted:
    """An engine whose steps are given; it notes what it was asked."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = deque(steps)
        self.added: list[list[int]] = []

    def add(self, starts: Sequence[Start], stop_ids: Sequence[int]) -> None:
        """See vllm_run.Stepping."""
        assert list(stop_ids) == [9]
        self.added.append([start.index for start in starts])
        assert all(len(start.prompt) == 3 and start.most > 0 for start in starts)

    def step(self) -> Step:
        """See vllm_run.Stepping."""
        return self.steps.popleft()


def request(gamma: int, most: list[int], batch: int) -> Any:
    """A run of one prompt for each number of new tokens."""
    shape = {"kind": "chain", "gamma": gamma} if gamma else {"kind": "none"}
    return {
        "method": {"precision": "fp16", "drafter": {"kind": "none"}, "shape": shape},
        "prompts": [[1, 2, 3]] * len(most), "arrivals": None, "batch_size": batch,
        "max_new_tokens": most, "stop_ids": [9],
    }  # fmt: skip


def test_plain_steps_are_rounds_after_each_prompts_first() -> None:
    engine = Scripted([
        Step({0: [5], 1: [6]}, 0), Step({0: [5], 1: [9]}, 0), Step({0: [7], 2: [4]}, 0),
        Step({2: [4]}, 0),
    ])  # fmt: skip
    answer = decode_stepping(request(0, [3, 5, 2], 2), engine)
    assert [r["tokens"] for r in answer["requests"]] == [[5, 5, 7], [6, 9], [4, 4]]
    assert [r["finish"] for r in answer["requests"]] == ["length", "stop", "length"]
    assert engine.added == [[0, 1], [2]]
    assert answer["rounds"]["sequences"] == [2, 1, 1]
    assert answer["sequence_rounds"]["committed"] == [1, 1, 1, 1]


def test_drafted_tokens_of_a_batch_add_up() -> None:
    engine = Scripted([Step({0: [5], 1: [6]}, 0), Step({0: [1, 2, 3], 1: [4]}, 5)])
    answer = decode_stepping(request(3, [4, 2], 2), engine)
    columns = answer["sequence_rounds"]
    assert columns["accepted"] == [2, 0]
    assert columns["drafted"] == [3, 2]
    assert answer["rounds"]["rows"] == [7]


def test_tokens_after_a_stop_are_dropped() -> None:
    engine = Scripted([Step({0: [5]}, 0), Step({0: [1, 9, 3]}, 2)])
    answer = decode_stepping(request(2, [9], 1), engine)
    assert answer["requests"][0]["tokens"] == [5, 1, 9]
    assert answer["sequence_rounds"]["accepted"] == [2]
