"""What Hugging Face's libraries make of checkpoints; run by an interpreter that has them.

python hf_reference.py REQUEST.json, which holds a list of steps, done in order:
  {"do": "compress", "from": FOLDER, "to": FOLDER, "dtype", "symmetric", "strategy", "group_size"}
      quantizes a checkpoint to 4 bits with llmcompressor, by rounding to nearest;
  {"do": "weights", "folder": FOLDER, "out": FILE}
      writes the weights that transformers loads, dequantized, as safetensors;
  {"do": "logprobs", "folder": FOLDER, "tokens": [[...]], "out": FILE}
      writes as JSON the log-probability of each token but the first, computed in f32.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, CompressedTensorsConfig, PreTrainedModel


def load(folder: str, dtype: Any) -> PreTrainedModel:
    """A model with plain linear layers, whatever the checkpoint stores."""
    config = json.loads((Path(folder) / "config.json").read_text())
    options = {}
    if "quantization_config" in config:
        options["quantization_config"] = CompressedTensorsConfig(run_compressed=False)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **options).eval()


def compress(step: dict[str, Any]) -> None:
    """Round a checkpoint's linear layers to 4 bits and save it packed."""
    model = load(step["from"], getattr(torch, step["dtype"]))
    weights = QuantizationArgs(
        num_bits=4,
        type="int",
        symmetric=step["symmetric"],
        strategy=step["strategy"],
        group_size=step["group_size"],
    )
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    modifier = QuantizationModifier(config_groups={"group_0": scheme}, ignore=["lm_head"])
    oneshot(model=model, recipe=[modifier])
    model.save_pretrained(step["to"], save_compressed=True)


def weights(step: dict[str, Any]) -> None:
    """Write the dequantized weights in the types that the library gives them."""
    model = load(step["folder"], "auto")
    state = {
        name: value.detach().clone().contiguous()
        for name, value in model.state_dict().items()
        if not name.endswith(("_scale", "_zero_point", "_shape", "_g_idx"))
    }
    save_file(state, step["out"])


def logprobs(step: dict[str, Any]) -> None:
    """Score token sequences."""
    model = load(step["folder"], "auto").to(torch.float32)
    found = []
    with torch.no_grad():
        for tokens in step["tokens"]:
            ids = torch.tensor([tokens])
            scores = model(ids).logits[0, :-1].log_softmax(-1)
            found.append(scores.gather(1, ids[0, 1:, None])[:, 0].tolist())
    Path(step["out"]).write_text(json.dumps(found))


if __name__ == "__main__":
    actions = {"compress": compress, "weights": weights, "logprobs": logprobs}
    for step in json.loads(Path(sys.argv[1]).read_text()):
        actions[step["do"]](step)
