"""A plan as it is asked for: which workload, which replica, and what if. Data alone, so that it can be sent as bytes.

Nothing that plays plans is imported here: who only asks for one need not load it.
"""

from dataclasses import dataclass
from decimal import Decimal

import msgspec

from contracts.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The question. Everything after `kv_blocks` is what would be otherwise; `None` or empty: as it is.

    `kv_blocks` and `usd_per_gpu_hour` are of the replica as it is, where its steps do not say. `traffic` multiplies the
    requests a second. The p95 bounds are milliseconds: where there is one, the fewest replicas that keep it are sought.
    """

    replicas: int = 1
    policy: str = "cost"
    seed: int = 0
    usd_per_gpu_hour: Decimal | None = None
    kv_blocks: int | None = None
    traffic: float = 1.0
    without: tuple[str, ...] = ()
    chunk_tokens: int | None = None
    gpu: str = ""
    to_gpu: str = ""
    quantization: str = ""
    parameters_billions: float | None = None
    kv_token_bytes: float | None = None
    to_usd_per_gpu_hour: Decimal | None = None
    spot_share: float | None = None
    ttft_p95_ms: float | None = None
    gap_p95_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Generated requests: number, rate per second, and mean lengths in tokens."""

    requests: int
    per_second: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob:
    """The message. Without `made`, the recorded requests of the last `hours` are replayed; `model` empty: of all.

    `setup` is a replica as JSON text; empty: one is fitted to the steps that engines measured in those hours.
    """

    what_if: WhatIf
    hours: float = 1.0
    model: str = ""
    made: Made | None = None
    setup: str = ""

    def as_bytes(self) -> bytes:
        """Write it as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def of_bytes(cls, data: bytes) -> "PlanJob":
        """Read what `as_bytes` wrote. Raises InvalidRequest on anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidRequest(f"this is not a plan: {error}") from error
