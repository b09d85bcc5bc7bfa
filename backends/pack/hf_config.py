"""The dimensions of a Hugging Face checkpoint, from its config.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from backends.pack.checkpoint import Checkpoint
from backends.pack.errors import CheckpointError
from backends.pack.positions import window_note
from backends.pack.tiles import TILE_ROWS

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
_LLAMA3 = {
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_max_position",
}


@dataclass(frozen=True)
class HfConfig:
    """`dimensions` are the packed file's; `notes` say what was changed on the way."""

    model_type: str
    dimensions: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def read_config(checkpoint: Checkpoint, table: dict[str, Any] | None = None) -> HfConfig:
    """Dimensions of a Llama, Mistral, Qwen2 or Qwen3; `table` is a part of config.json to read.

    Reads both spellings of the rotary embedding (`rope_theta` and `rope_scaling`, and
    transformers 5's `rope_parameters`). Raises CheckpointError for another architecture, a missing
    dimension, and what the packed format cannot say.
    """
    return _Reader(checkpoint, checkpoint.config if table is None else table).read()


class _Reader:
    def __init__(self, checkpoint: Checkpoint, table: dict[str, Any]) -> None:
        self.config = table
        self.path = checkpoint.folder / "config.json"
        self.notes: list[str] = []

    def _error(self, what: str) -> CheckpointError:
        return CheckpointError(self.path, what)

    def _number(self, table: dict[str, Any], key: str, default: float | None = None) -> Any:
        value = table.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._error(f"{key!r} is missing or no positive number.")
        return value

    def _integer(self, key: str, default: int | None = None) -> int:
        value = self._number(self.config, key, default)
        if value != int(value):
            raise self._error(f"{key!r} is {value}, which is no integer.")
        return int(value)

    def read(self) -> HfConfig:
        """Check and translate."""
        model_type = self.config.get("model_type")
        if model_type not in MODEL_TYPES:
            raise self._error(
                f"its model_type is {model_type!r}; supported are {', '.join(MODEL_TYPES)}."
            )
        if self.config.get("hidden_act", "silu") != "silu":
            raise self._error(f"hidden_act {self.config['hidden_act']!r} is unsupported.")
        hidden, inner = self._integer("hidden_size"), self._integer("intermediate_size")
        heads = self._integer("num_attention_heads")
        kv_heads = self._integer("num_key_value_heads", heads)
        if heads % kv_heads:
            raise self._error(f"{heads} heads do not divide into {kv_heads} key-value heads.")
        if inner % TILE_ROWS:
            raise self._error(f"intermediate_size {inner} is no multiple of 16.")
        head_dim = self._integer("head_dim", hidden // heads)
        if head_dim % 2:
            raise self._error(f"head_dim {head_dim} is odd, which rotary embedding cannot be.")
        theta, scaling = self._rotary()
        dimensions: dict[str, Any] = {
            "architecture": "llama",
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_layers": self._integer("num_hidden_layers"),
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_dim": head_dim,
            "vocab_size": self._integer("vocab_size"),
            "max_position": self._max_position(),
            "rope_theta": theta,
            "rms_norm_eps": float(self._number(self.config, "rms_norm_eps")),
            "tied_head": bool(self.config.get("tie_word_embeddings", False)),
        }
        if scaling is not None:
            dimensions["rope_scaling"] = scaling
        return HfConfig(model_type, dimensions, self.notes)

    def _rotary(self) -> tuple[float, dict[str, Any] | None]:
        table = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        if not isinstance(table, dict):
            raise self._error("its rotary parameters are no object.")
        theta = self._number({**self.config, **table}, "rope_theta", 10000.0)
        partial = {**self.config, **table}.get("partial_rotary_factor")
        if partial not in (None, 1, 1.0):
            raise self._error(f"partial_rotary_factor {partial} is unsupported.")
        kind = table.get("rope_type", table.get("type", "default"))
        if kind == "default":
            return float(theta), None
        if kind == "linear":
            return float(theta), {"type": "linear", "factor": float(self._number(table, "factor"))}
        if kind == "llama3":
            values = {new: self._number(table, old) for old, new in _LLAMA3.items()}
            return float(theta), {"type": "llama3", **values}
        raise self._error(
            f"rotary scaling {kind!r} is unsupported; supported are default, linear and llama3."
        )

    def _max_position(self) -> int:
        """The longest context in which a sliding window, if any, sees everything."""
        longest = self._integer("max_position_embeddings")
        window = self.config.get("sliding_window")
        if self.config.get("model_type") in ("qwen2", "qwen3"):
            layers = self.config.get("layer_types") or []
            if not (self.config.get("use_sliding_window") or "sliding_attention" in layers):
                window = None
        if window is None or window >= longest:
            return longest
        window = self._integer("sliding_window")
        self.notes.append(window_note(window, longest))
        return window
