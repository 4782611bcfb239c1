"""A plan's input: workload, replica, and changes to examine. Plain data that can be sent as bytes.

The simulation is not imported here, so that callers that only send a plan need not load it.
"""

from dataclasses import dataclass
from decimal import Decimal

import msgspec

from contracts.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The plan. Fields after `kv_blocks` are changes; `None` or empty: unchanged.

    `kv_blocks` and `usd_per_gpu_hour` are the current replica's, if measured steps lack them. `traffic` multiplies the
    requests per second. p95 limits are in milliseconds; with one, the fewest replicas that meet it are searched.
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
class GeneratedRequests:
    """Generated requests: number, rate per second, and mean lengths in tokens."""

    requests: int
    per_second: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob:
    """A plan as a message. Without `made`, the recorded requests of the last `hours` are replayed; `model` empty: all.

    `setup` is a replica as JSON text; empty: one is fitted to the engine steps of those hours.
    """

    what_if: WhatIf
    hours: float = 1.0
    model: str = ""
    made: GeneratedRequests | None = None
    setup: str = ""

    def as_bytes(self) -> bytes:
        """Return the message as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def of_bytes(cls, data: bytes) -> "PlanJob":
        """Parse the result of `as_bytes`. Raises InvalidRequest on anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidRequest(f"this is not a plan: {error}") from error
