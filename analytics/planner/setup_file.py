"""A replica's setup as a JSON file, for plans of engines that this installation has not measured."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from algorithms.gpu_time.step_model import StepModel
from analytics.planner.setup import ReplicaSetup
from contracts.errors import ConfigurationError


class _Setup(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    steps: StepModel
    max_batch_tokens: int = 8192
    max_sequences: int = 256
    kv_blocks: int = 20_000
    block_tokens: int = 16
    host_gap_ns: float = 0.0
    wire_ns: float = 0.0
    prompt_ratios: tuple[float, ...] = ()
    decode_ratios: tuple[float, ...] = ()
    ranks: int = 1
    usd_per_gpu_hour: Decimal | None = None


def read_setup(path: Path) -> ReplicaSetup:
    """Read a setup. Raises ConfigurationError, naming the file, if it is none; InvalidRequest on what cannot be."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"setup {path} cannot be read: {error.strerror}") from error
    return setup_of_json(data, f"setup {path}")


def setup_of_json(data: bytes, name: str) -> ReplicaSetup:
    """Read a setup off JSON text, called `name` if it is none. Raises as `read_setup` does."""
    try:
        found = msgspec.json.decode(data, type=_Setup)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigurationError(f"{name} is not one: {error}") from error
    return ReplicaSetup(**{field: getattr(found, field) for field in found.__struct_fields__})


def setup_as_json(setup: ReplicaSetup) -> dict[str, Any]:
    """Return what `read_setup` reads; a price as text, exact."""
    made = _Setup(**{name: getattr(setup, name) for name in _Setup.__struct_fields__})
    plain: dict[str, Any] = msgspec.to_builtins(made)
    return plain
