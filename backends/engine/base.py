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
    """An order to load a model: its name, its source, and differences from the host's settings.

    `source` is a directory or a hub name. `engine` names this load in its step records, so that a model loaded twice
    numbers its steps separately. `died_ns`: when the engine that this one replaces died (monotonic).
    """

    name: str
    source: str
    engine: str = ""
    adapters: tuple[tuple[str, Path], ...] = ()
    options: Mapping[str, float | int | str | bool | None] = field(default_factory=dict)
    died_ns: int | None = None


class Engine(Protocol):
    """One model. `submit` and `abort` may be called from any thread, everything else by the stepping thread."""

    def submit(self, submit: Submit, /) -> None:
        """Accept a request; errors are reported in its `Finished`."""

    def abort(self, request_id: bytes, /) -> None:
        """End a request at the next step; an unknown or finished one is ignored."""

    @property
    def has_work(self) -> bool:
        """Return whether `step` would compute or return anything."""

    def step(self) -> Sequence[EngineEvent]:
        """Compute one step and return what it produced, in order."""

    def warm_up(self) -> None:
        """Compute something, so that the first request is not slowed by one-time initialisation."""

    def load_adapter(self, name: str, path: Path, /) -> None:
        """Load an adapter. Raises ConfigurationError."""

    def unload_adapter(self, name: str, /) -> None:
        """Unload an adapter. Raises ConfigurationError."""

    def hello(self) -> ModelHello:
        """Return the description of the model and its current state."""

    def take_steps(self) -> list[StepRecord]:
        """Return the step records since the last call."""

    def take_kv_events(self) -> list[KvRecord]:
        """Return the KV cache's changes since the last call."""

    def stats(self) -> Facts:
        """Return counters and gauges; `running` and `waiting` among them."""

    def close(self) -> None:
        """Stop background work."""


@runtime_checkable
class EmbeddingEngine(Protocol):
    """An engine that can also serve an embedding model; its hello then says so."""

    def embed(self, embed: Embed, /) -> None:
        """Accept inputs, from any thread; their vectors are sent as `Embedded`. Raises InvalidRequest."""


EngineBuilder = Callable[[ModelOrder], Engine]  # called in the stepping thread; raises TollkeeperError
