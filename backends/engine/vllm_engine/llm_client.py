"""The engine's interface to vLLM, small enough to be replayed from a recording.

The shapes are those of vLLM's own objects (vllm/outputs.py, vllm/lora/request.py, 0.25.1), as far as they are used.
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
    """When what happened, in seconds of the monotonic clock of the process that schedules; 0.0: not yet."""

    @property
    def scheduled_ts(self) -> float: ...

    @property
    def first_token_ts(self) -> float: ...

    @property
    def last_token_ts(self) -> float: ...


class LlmOutput(Protocol):
    """What a step added to one request. The prompt is as vLLM computes it: an image is as many ids as it has tokens."""

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
    """The end of an embedding: float32, little-endian."""

    vector: bytes
    dimensions: int


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter as vLLM knows it: numbers begin at 1 and are never used twice."""

    name: str
    number: int
    path: Path


@dataclass(frozen=True, slots=True)
class LlmPrompt:
    """What to compute: ids, and images where their placeholders are among them."""

    token_ids: list[int]
    cache_salt: str = ""
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A generation. `sampling` holds vLLM's own names; `constraint` the one field of its structured outputs, if any.

    `is_past_reasoning`: the constraint holds from the first token on; `None` leaves it to vLLM's reasoning parser.
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
    """One vLLM engine and the event loop it lives on. Used by one thread, but for `wake`."""

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
        """Run the loop until something is to be told."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one coroutine to its end; outputs that arrive meanwhile go to their sinks."""

    def wake(self) -> None:
        """Make `run_until` check again. From any thread."""

    def at(self, monotonic_ns: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back at a time; return what cancels it."""

    @property
    def is_dead(self) -> bool:
        """Return whether vLLM's own process has died."""

    async def add_adapter(self, adapter: Adapter) -> None:
        """Load an adapter. Raises ValueError or RuntimeError with vLLM's reason."""

    async def remove_adapter(self, adapter: Adapter) -> None:
        """Drop an adapter."""

    async def reset_prefix_cache(self) -> None:
        """Forget every cached prefix."""

    async def sleep(self, level: int) -> None:
        """Release the GPU's memory: 1 keeps the weights in host memory, 2 drops them if they can be read again."""

    async def wake_up(self) -> None:
        """Accept the memory again; weights that were dropped are read from disk."""

    def close(self) -> None:
        """End vLLM's processes."""
