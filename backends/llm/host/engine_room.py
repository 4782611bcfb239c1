"""Free capacity of an engine host, computed from its hello message and its counters (read every second)."""

from collections.abc import Mapping
from dataclasses import dataclass

from contracts.engine.wire import Hello, ModelHello

Fact = float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class EngineRoom:
    """Capacity of one model on one host, and the part that clients other than this gateway use.

    `max_sequences` is `None` if the host does not report it. Tokens are those of its KV cache.
    """

    kv_tokens: int
    max_sequences: int | None = None
    others_sequences: int = 0
    others_tokens: int = 0


class RoomBook:
    """The last counters of one host. The part of other clients is the smaller of two consecutive values, because
    requests of this gateway begin and end between the two counts.
    """

    def __init__(self) -> None:
        self.facts: Mapping[str, Fact] = {}  # all counters of the host; a model's have its name as prefix
        self._facts: dict[str, Mapping[str, Fact]] = {}
        self._others: dict[str, tuple[int, int]] = {}  # by model: the last two values

    def note(self, hello: Hello, facts: Mapping[str, Fact], ours: int) -> None:
        """Record a host's counters, read while `ours` requests of this gateway were in progress there."""
        self.facts = facts
        for model in hello.models:
            prefix = f"{model.id}."
            own = {name.removeprefix(prefix): value for name, value in facts.items() if name.startswith(prefix)}
            seen = max(_count(own, "running") + _count(own, "waiting") - ours, 0)
            self._others[model.id] = (seen, self._others.get(model.id, (0, 0))[0])
            self._facts[model.id] = own

    def forget(self) -> None:
        """Remove all counters, because the host is gone."""
        self.facts = {}
        self._facts = {}
        self._others = {}

    def room(self, model: ModelHello) -> EngineRoom | None:
        """Return a ready model's capacity; `None` if it has no KV cache, such as an embedding model."""
        if model.state != "ready" or not model.kv_blocks or not model.block_size:
            return None
        facts = self._facts.get(model.id, {})
        others = min(self._others.get(model.id, (0, 0)))
        running = _count(facts, "running")
        # The host does not report blocks by client: assume that each running request has the average.
        held = _count(facts, "kv_blocks_held") * model.block_size
        return EngineRoom(
            kv_tokens=model.kv_blocks * model.block_size,
            max_sequences=_count(facts, "max_sequences") or None,
            others_sequences=others,
            others_tokens=held * min(others, running) // running if running else 0,
        )


def _count(facts: Mapping[str, Fact], name: str) -> int:
    value = facts.get(name)
    return max(int(value), 0) if isinstance(value, int | float) else 0
