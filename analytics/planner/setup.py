"""A planned replica: its step times, limits of a step, cache size, and price."""

import math
from dataclasses import dataclass
from decimal import Decimal

from algorithms.gpu_time.step_model import StepModel
from contracts.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSetup:
    """One replica. Times are nanoseconds.

    `steps` predicts a step's busy time, `host_gap_ns` is the gap between two steps, `wire_ns` the network time of a
    request and its first token together. `prompt_ratios` and `decode_ratios` are equally likely ratios of actual to
    predicted time, of steps with and without a prompt; empty: always 1. `ranks` is the number of GPUs per replica,
    `usd_per_gpu_hour` the price of each; `None`: unknown.
    """

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

    def __post_init__(self) -> None:
        for name in ("max_batch_tokens", "max_sequences", "kv_blocks", "block_tokens", "ranks"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"a replica's {name} is {getattr(self, name)}; it must be at least 1", param=name)
        for name in ("host_gap_ns", "wire_ns"):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"a replica's {name} is {getattr(self, name)}; it must be 0 or more", param=name)
        for name in ("prompt_ratios", "decode_ratios"):
            if not all(0 <= ratio < math.inf for ratio in getattr(self, name)):
                raise InvalidRequest(f"a replica's {name} are numbers of 0 or more", param=name)
        if bool(self.prompt_ratios) != bool(self.decode_ratios):
            raise InvalidRequest("a replica has ratios of both kinds of steps or of none", param="prompt_ratios")
        if self.max_batch_tokens < self.max_sequences:
            raise InvalidRequest(
                f"a step of {self.max_batch_tokens} tokens cannot hold one of each of {self.max_sequences} sequences",
                param="max_batch_tokens",
            )
        if self.usd_per_gpu_hour is not None and self.usd_per_gpu_hour < 0:
            raise InvalidRequest(f"a GPU-hour cannot cost {self.usd_per_gpu_hour} USD", param="usd_per_gpu_hour")

    def holds(self, tokens: int) -> bool:
        """Return whether a request of that many tokens fits into the empty cache."""
        return -(-tokens // self.block_tokens) <= self.kv_blocks
