"""CUDA graphs: a step of many small kernels is launched at once."""

from __future__ import annotations

from collections.abc import Callable

import torch


def captured(
    step: Callable[[], None], device: torch.device, pool: object | None = None
) -> Callable[[], None]:
    """A function that repeats `step` as one launch; on a CPU, `step` itself.

    `step` must read and write the same tensors each time and never wait for the device. On a GPU it
    is run once here before it is captured, so what it changes is changed. Steps captured with one
    `pool` share memory: nothing that one of them leaves behind may be read after another has run.
    """
    if device.type != "cuda":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    replay: Callable[[], None] = graph.replay
    return replay
