"""`load` requests of engines that serve one packed file, nothing synthetic and no drafters."""

from __future__ import annotations

from backends.pack.errors import CheckpointError
from backends.pack.packed import PackedFile
from backends.protocol import LoadRequest, RequestError


def packed_model(request: LoadRequest) -> PackedFile:
    """The packed file that the request names.

    Raises RequestError `unsupported` for a synthetic model or a drafter with weights of its own,
    `model` where the file cannot be read.
    """
    if "path" not in request["model"]:
        raise RequestError("unsupported", "synthetic models are not served; give 'model.path'.")
    if request["drafters"]:
        raise RequestError("unsupported", "drafters with weights of their own are not served.")
    try:
        return PackedFile(request["model"]["path"])
    except CheckpointError as error:
        raise RequestError("model", str(error)) from error
