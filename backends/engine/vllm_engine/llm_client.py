"""The engine's interface to vLLM, small enough to be replayed from a recording.

Field names and types are those of vLLM's objects (vllm/outputs.py, vllm/lora/request.py, 0.25.1).
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from contracts.engine.wire import Image

T = TypeVar("T")


class LlmLogprob(Protocol):
    """One token's log probability, a natural logarithm."""

    @property
    def logprob(self) -> float: ...


class LlmChoice(Protocol):
    """What a step added to one choice. `finish_reason`: stop, length, abort, error, repetition."""

    @property
    def index(self) -> int: ...

    @property
    def token_ids(self) -> Sequence[int]: ...

    @property
    def logprobs(self) -> Sequence[Mapping[int, LlmLogprob]] | None: ...

    @property
    def finish_reason(self) -> str | None: ...


class LlmTimes(Protocol):
    """Times of a request's events, in seconds of the scheduler process's monotonic clock; 0.0: not yet."""

    @property
    def scheduled_ts(self) -> float: ...

    @property
    def first_token_ts(self) -> float: ...

    @property
    def last_token_ts(self) -> float: ...


class LlmOutput(Protocol):
    """What a step added to one request. In `prompt_token_ids` an image takes as many ids as it has tokens."""

    @property
    def prompt_token_ids(self) -> Sequence[int] | None: ...

    @property
    def outputs(self) -> Sequence[LlmChoice]: ...

    @property
    def finished(self) -> bool: ...

    @property
    def num_cached_tokens(self) -> int | None: ...

    @property
    def metrics(self) -> LlmTimes | None: ...

    @property
    def kv_transfer_params(self) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class LlmVector:
    """The result of an embedding: float32, little-endian."""

    vector: bytes
    dimensions: int


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter as vLLM knows it. Numbers begin at 1 and are never reused."""

    name: str
    number: int
    path: Path


@dataclass(frozen=True, slots=True)
class LlmPrompt:
    """A prompt: token ids, and the images for the placeholders among them."""

    token_ids: list[int]
    cache_salt: str = ""
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A generation. `sampling` has vLLM's field names; `constraint` is at most one field of its structured outputs.

    `is_past_reasoning`: `True` if the constraint applies from the first token on; `None` leaves that to vLLM's
    reasoning
    parser.
    """

    name: str
    prompt: LlmPrompt
    sampling: Mapping[str, object]
    constraint: Mapping[str, object] = field(default_factory=dict)
    is_past_reasoning: bool | None = None
    adapter: Adapter | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class LlmFacts:
    """The model as vLLM serves it. `kind` is "generate" or "embed"."""

    kind: str
    context_tokens: int
    vocabulary: int
    block_size: int
    kv_blocks: int
    dimensions: int = 0
    accepts_images: bool = False
    ranks: int = 1
    version: str = ""


# Called on the client's loop: an output, a vector, or the exception that ends the request.
Sink = Callable[[LlmOutput | LlmVector | BaseException], None]


class LlmClient(Protocol):
    """One vLLM engine and its event loop. Used by one thread, except `wake`."""

    facts: LlmFacts
    can_sleep: bool

    def add(self, request: LlmRequest, sink: Sink) -> None:
        """Start a generation; errors go to the sink as an exception."""

    def embed(self, name: str, prompt: LlmPrompt, sink: Sink) -> None:
        """Start an embedding of one input."""

    def abort(self, name: str, choice: int | None = None, *, then: Callable[[], object] = lambda: None) -> None:
        """End a request, or one choice of it. Its last output may still arrive.

        `then` is called once vLLM has processed the abort: later schedules do not include the request.
        """

    def run_until(self, has_news: Callable[[], bool]) -> None:
        """Run the loop until `has_news` returns true."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result; outputs that arrive meanwhile go to their sinks."""

    def wake(self) -> None:
        """Make `run_until` check again. May be called from any thread."""

    def at(self, monotonic_ns: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` at a monotonic time in nanoseconds; return a function that cancels it."""

    @property
    def is_dead(self) -> bool:
        """Return whether vLLM's own process has died."""

    async def add_adapter(self, adapter: Adapter) -> None:
        """Load an adapter. Raises ValueError or RuntimeError with vLLM's reason."""

    async def remove_adapter(self, adapter: Adapter) -> None:
        """Unload an adapter."""

    async def reset_prefix_cache(self) -> None:
        """Empty the prefix cache."""

    async def sleep(self, level: int) -> None:
        """Release the GPU's memory. Level 1 keeps the weights in host memory, 2 discards them."""

    async def wake_up(self) -> None:
        """Allocate the GPU's memory again; weights that were discarded are read from disk."""

    def close(self) -> None:
        """End vLLM's processes."""
