"""A planned replica: how fast it steps, how much goes into a step, what its cache holds, and what it costs."""

from dataclasses import dataclass
from decimal import Decimal

from contracts.errors import InvalidRequest
from contracts.step_model import StepModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSetup:
    """One replica. Times are nanoseconds.

    `steps` says how long a step is busy, `host_gap_ns` what passes between two while work is there, `wire_ns` what a
    request and its first token spend on the way together. `ranks` are the GPUs of one replica,
    `usd_per_gpu_hour` what one costs; `None` where nobody has said.
    """

    steps: StepModel
    max_batch_tokens: int = 8192
    max_sequences: int = 256
    kv_blocks: int = 20_000
    block_tokens: int = 16
    host_gap_ns: float = 0.0
    wire_ns: float = 0.0
    ranks: int = 1
    usd_per_gpu_hour: Decimal | None = None

    def __post_init__(self) -> None:
        for name in ("max_batch_tokens", "max_sequences", "kv_blocks", "block_tokens", "ranks"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"a replica's {name} is {getattr(self, name)}; it must be at least 1", param=name)
        for name in ("host_gap_ns", "wire_ns"):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"a replica's {name} is {getattr(self, name)}; it must be 0 or more", param=name)
        if self.max_batch_tokens < self.max_sequences:
            raise InvalidRequest(
                f"a step of {self.max_batch_tokens} tokens cannot hold one of each of {self.max_sequences} sequences",
                param="max_batch_tokens",
            )
        if self.usd_per_gpu_hour is not None and self.usd_per_gpu_hour < 0:
            raise InvalidRequest(f"a GPU-hour cannot cost {self.usd_per_gpu_hour} USD", param="usd_per_gpu_hour")

    def holds(self, tokens: int) -> bool:
        """Say whether a request that comes to so many tokens fits into the cache when it is alone."""
        return -(-tokens // self.block_tokens) <= self.kv_blocks
