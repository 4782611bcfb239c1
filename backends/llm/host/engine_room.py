"""Free capacity of an engine host, from its hello message and its counters every second."""

from collections.abc import Mapping
from dataclasses import dataclass

from contracts.engine.wire import Hello, ModelHello

Fact = float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class EngineRoom:
    """What one model of one host can hold in all, and what others than this gateway hold of it now.

    `max_sequences` is `None` if the host does not say. Tokens are of its KV cache.
    """

    kv_tokens: int
    max_sequences: int | None = None
    others_sequences: int = 0
    others_tokens: int = 0


class RoomBook:
    """What one host last said. Others' share is the smaller of two reports: ours come and go between the counts."""

    def __init__(self) -> None:
        self.facts: Mapping[str, Fact] = {}  # all that the host told, the models' under their names
        self._facts: dict[str, Mapping[str, Fact]] = {}
        self._others: dict[str, tuple[int, int]] = {}  # by model: in the last report, and the one before

    def note(self, hello: Hello, facts: Mapping[str, Fact], ours: int) -> None:
        """Record a host's counters, at a moment when the given number of requests there were ours."""
        self.facts = facts
        for model in hello.models:
            prefix = f"{model.id}."
            own = {name.removeprefix(prefix): value for name, value in facts.items() if name.startswith(prefix)}
            seen = max(_count(own, "running") + _count(own, "waiting") - ours, 0)
            self._others[model.id] = (seen, self._others.get(model.id, (0, 0))[0])
            self._facts[model.id] = own

    def forget(self) -> None:
        """Forget all: the host is gone, and another may come in its place."""
        self.facts = {}
        self._facts = {}
        self._others = {}

    def room(self, model: ModelHello) -> EngineRoom | None:
        """Return a ready model's room; `None` for one without a KV cache, as of embeddings."""
        if model.state != "ready" or not model.kv_blocks or not model.block_size:
            return None
        facts = self._facts.get(model.id, {})
        others = min(self._others.get(model.id, (0, 0)))
        running = _count(facts, "running")
        # Whose a block is the host does not say: others hold on average what each that runs holds.
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
