"""Opens the GPU libraries that this machine has."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final

import pynvml

from backends.gpu.amd_reader import AmdReader
from backends.gpu.base import DeviceIdentity, GpuReader
from backends.gpu.nvml import Nvml
from backends.gpu.nvml_reader import NvmlReader
from contracts.errors import ConfigurationError, Unavailable

_log = logging.getLogger(__name__)

_NONE: Final = frozenset({"-1", "nodevfiles", "none", "void"})  # ends the list of visible GPUs


def open_readers() -> tuple[list[GpuReader], list[str]]:
    """Return a reader for each vendor whose driver responds, and for each other vendor the reason."""
    readers: list[GpuReader] = []
    missing: list[str] = []
    for opening in (_nvidia, AmdReader.open):
        try:
            readers.append(opening())
        except Unavailable as error:
            missing.append(error.message)
    return readers, missing


def require_gpu() -> list[GpuReader]:
    """Return the readers. Raises Unavailable, code `gpu_driver_missing`, if no driver responds or there is no GPU."""
    readers, missing = open_readers()
    found = [reader for reader in readers if reader.devices()]
    if found:
        return found
    for reader in readers:
        reader.close()
    reason = "; ".join(missing) or "the driver answers, but has no GPU"
    raise Unavailable(f"an engine on a GPU needs one: {reason}", code="gpu_driver_missing")


def visible(devices: Iterable[DeviceIdentity], environment: Mapping[str, str] | None = None) -> list[DeviceIdentity]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES selects, in its order; all if it is not set.

    Numbers follow the driver's order (CUDA_DEVICE_ORDER=PCI_BUS_ID). A GPU with MIG slices is represented by its
    slices. Raise ConfigurationError on an unknown name.
    """
    known = list(devices)
    cut = {one.parent for one in known if one.parent}
    usable = [one for one in known if one.uuid not in cut]
    named = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return usable
    parts = filter(None, (part.strip() for part in named.split(",")))
    return [_selected(part, usable) for part in takewhile(lambda part: part.lower() not in _NONE, parts)]


def _selected(part: str, usable: Sequence[DeviceIdentity]) -> DeviceIdentity:
    """Return the GPU with an index, or with a prefix of its UUID. Raises ConfigurationError unless exactly
    one matches.
    """
    whole = [one for one in usable if one.parent is None and str(one.index) == part]
    match = whole or [one for one in usable if one.uuid.startswith(part) and not part.isdigit()]
    if len(match) != 1:
        have = ", ".join(f"{one.index}: {one.uuid}" for one in usable) or "none"
        raise ConfigurationError(f"CUDA_VISIBLE_DEVICES names {part!r}, which is no GPU here; there are: {have}")
    return match[0]


def _nvidia() -> GpuReader:
    library = Nvml()
    try:
        return NvmlReader(library)
    except pynvml.NVMLError as error:
        library.close()
        raise Unavailable(f"NVIDIA's driver does not list its GPUs: {error}", code="gpu_driver_missing") from error
