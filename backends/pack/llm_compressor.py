"""Runs llmcompressor over a packed model, in the environment that has it.

`python -m backends.pack.llm_compressor REQUEST.json`, started by `backends.pack.quantize`. REQUEST:
`{model, method: gptq | awq, group, rotated, texts: [[token ids]], out}`. Writes the compressed
checkpoint (safetensors, config.json) into the folder `out`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.awq import AWQModifier
from llmcompressor.modifiers.quantization import GPTQModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from backends.llama_weights import llama_config, llama_state
from backends.pack.hadamard import hadamard_matrix
from backends.pack.packed import PackedFile
from backends.pack.rotation import rotate

LONGEST = 512
"""Tokens that are kept of a calibration text."""


def main(request_path: str) -> None:
    """Quantize as the request says."""
    request: dict[str, Any] = json.loads(Path(request_path).read_text(encoding="utf-8"))
    packed = PackedFile(request["model"])
    sizes = packed.metadata
    state = dict(llama_state(packed))
    if request["rotated"]:
        state = rotate(state, sizes)
    config = llama_config(sizes)
    if request["rotated"]:
        config["tie_word_embeddings"] = False
    model = LlamaForCausalLM(LlamaConfig(**config)).float()
    model.load_state_dict({name: torch.from_numpy(np.array(v)) for name, v in state.items()})
    # llmcompressor looks for the files of the model that it is given.
    source = str(Path(request["out"]).with_name("source"))
    model.save_pretrained(source)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(sizes["tokenizer"]), pad_token=sizes["eos_token"]
    )
    tokenizer.save_pretrained(source)
    model = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    if request["rotated"]:
        rotate_down_online(model, sizes["intermediate_size"])
    if not torch.accelerator.is_available():
        # AWQ of llmcompressor 0.14 pins memory for an accelerator even where there is none.
        IntermediatesCache.pin_memory = lambda *_: None
    texts = [text[:LONGEST] for text in request["texts"]]
    oneshot(
        model=model,
        processor=tokenizer,
        dataset=Dataset.from_dict(
            {"input_ids": texts, "attention_mask": [[1] * len(text) for text in texts]}
        ),
        recipe=[modifier(request["method"], request["group"])],
        max_seq_length=LONGEST,
        num_calibration_samples=len(texts),
    )
    model.save_pretrained(request["out"], save_compressed=True)


def modifier(method: str, group: int) -> Any:
    """Asymmetric 4-bit integers for every linear layer but the head."""
    weights = {
        "num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": group,
    }  # fmt: skip
    groups = {"all": {"targets": ["Linear"], "weights": weights}}
    if method == "gptq":
        return GPTQModifier(config_groups=groups, ignore=["lm_head"], dampening_frac=0.01)
    return AWQModifier(config_groups=groups, ignore=["lm_head"])


def rotate_down_online(model: LlamaForCausalLM, width: int) -> None:
    """Let `down_proj` be calibrated on its input as the engine will give it."""
    matrix = torch.from_numpy(hadamard_matrix(width))

    def turn(_: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (arguments[0] @ matrix.T.to(arguments[0]), *arguments[1:])

    for layer in model.model.layers:
        layer.mlp.down_proj.register_forward_pre_hook(turn)


if __name__ == "__main__":
    main(sys.argv[1])
