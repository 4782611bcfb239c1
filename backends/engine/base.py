"""The interface between an engine host and its engine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from contracts.engine.wire import Delta, Embed, Embedded, Finished, ModelHello, Submit
from contracts.recording.records import KvRecord, StepRecord

Facts = dict[str, float | int | str | bool | None]
EngineEvent = Delta | Finished | Embedded


@dataclass(frozen=True, slots=True)
class ModelOrder:
    """A model to be loaded: its name, where it lies, and what differs from the host's settings.

    `source` is a directory or a hub name; `engine` names this load in its step records, so that a model loaded
    twice numbers its steps afresh. `died_ns`: since when, by the monotonic clock, the engine before is dead whose place
    this one takes.
    """

    name: str
    source: str
    engine: str = ""
    adapters: tuple[tuple[str, Path], ...] = ()
    options: Mapping[str, float | int | str | bool | None] = field(default_factory=dict)
    died_ns: int | None = None


class Engine(Protocol):
    """One model. `submit` and `abort` may be called from any thread, all else by the thread that steps."""

    def submit(self, submit: Submit, /) -> None:
        """Accept a request; what is wrong with it comes as its `Finished`."""

    def abort(self, request_id: bytes, /) -> None:
        """End a request at the next step; one unknown or finished is left alone."""

    @property
    def has_work(self) -> bool:
        """Return whether `step` would do or tell anything."""

    def step(self) -> Sequence[EngineEvent]:
        """Compute one step and return what it produced, in order."""

    def warm_up(self) -> None:
        """Compute something, so that the first request does not pay for first times."""

    def load_adapter(self, name: str, path: Path, /) -> None:
        """Load an adapter. Raises ConfigurationError."""

    def unload_adapter(self, name: str, /) -> None:
        """Forget an adapter. Raises ConfigurationError."""

    def hello(self) -> ModelHello:
        """Describe the model as it is served."""

    def take_steps(self) -> list[StepRecord]:
        """Return the step records since the last call."""

    def take_kv_events(self) -> list[KvRecord]:
        """Return the KV cache's changes since the last call."""

    def stats(self) -> Facts:
        """Return counters and gauges; `running` and `waiting` among them."""

    def close(self) -> None:
        """Stop what runs beside the loop."""


@runtime_checkable
class EmbeddingEngine(Protocol):
    """An engine that can also hold a model that embeds. Such a model's hello says so."""

    def embed(self, embed: Embed, /) -> None:
        """Accept inputs, from any thread; their vectors come as `Embedded`. Raises InvalidRequest."""


EngineBuilder = Callable[[ModelOrder], Engine]  # called in the thread that will step; raises TollkeeperError
