"""Settings of a torch engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contracts.errors import ConfigurationError

Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of one model on one device.

    `kv_bytes` is the total for keys and values, half of it for the paged pool and half for the decode buffer; `None`
    takes an eighth of the free memory, at most 2 GiB, on a CPU and 80 % of what the weights leave on a GPU. `kv_blocks`
    sets the pool's size in blocks instead and the buffer's to the same bytes. `context_tokens` `None` is the model's
    own. `dtype` `None` is float32 on a CPU and bfloat16 on a GPU. `threads` `None` takes half the cores on a CPU,
    because torch's threads wait for each other, and one on a busy core delays all.
    """

    path: Path
    model: str = ""  # its name for requests; empty: the directory's
    engine: str = "engine"
    replica: str = ""
    device: str = "cpu"
    dtype: Dtype | None = None
    kv_bytes: int | None = None
    kv_blocks: int | None = None
    context_tokens: int | None = None
    max_batch_tokens: int = 512
    max_sequences: int = 64
    threads: int | None = None
    prefix_cache: bool = True
    metering: bool = True
    adapters: tuple[tuple[str, Path], ...] = ()
    tool_parser: str = "auto"  # this and the next: see AnswerFormat
    reasoning_tags: str = "auto"

    def __post_init__(self) -> None:
        for name in ("max_batch_tokens", "max_sequences"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_batch_tokens < self.max_sequences:
            raise ConfigurationError(
                f"max_batch_tokens {self.max_batch_tokens} is below max_sequences {self.max_sequences}: "
                "a step must hold one token of every running sequence"
            )

    @property
    def name(self) -> str:
        """Return the model's name for requests."""
        return self.model or self.path.name
