"""Loads a model again if its engine fails after it has served: its process died, or a step raised an error."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from backends.engine.base import ModelOrder
from backends.engine.served import Served

_log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 60.0  # longest wait between two attempts; after serving for this long, waits start over


@dataclass(slots=True)
class _Fate:
    """A model's failures: since when it serves, how long to wait after its next failure, when to load it again."""

    serves_since: float | None = None
    wait_seconds: float = FIRST_SECONDS
    due_at: float | None = None
    died_at: float | None = None  # of the first of consecutive failures


@dataclass(slots=True)
class Revival:
    """Loads failed models again. Call `look` repeatedly on the event loop. A model that has never served is left to its
    loader.
    """

    models: Iterable[Served]
    load: Callable[[ModelOrder], object]
    now: Callable[[], float] = time.monotonic
    _fates: dict[str, _Fate] = field(default_factory=dict)

    def look(self) -> None:
        """Record which models serve, and load one whose wait after a failure has passed."""
        now = self.now()
        for model in list(self.models):
            name = model.order.name
            if model.state == "ready":
                fate = self._fates.setdefault(name, _Fate())
                if fate.serves_since is None:
                    fate.serves_since = now
                fate.due_at = fate.died_at = None
            elif model.state == "failed" and model.closed.done() and name in self._fates:
                self._raise_up(model, self._fates[name], now)
        known = {model.order.name for model in self.models}
        for name in set(self._fates) - known:
            del self._fates[name]  # the model was unloaded

    def _raise_up(self, model: Served, fate: _Fate, now: float) -> None:
        if fate.due_at is None:
            if fate.serves_since is not None and now - fate.serves_since >= MOST_SECONDS:
                fate.wait_seconds = FIRST_SECONDS
            fate.serves_since = None
            fate.died_at = now if fate.died_at is None else fate.died_at
            fate.due_at = now + fate.wait_seconds
            _log.warning("model died model=%s again_in_seconds=%g", model.order.name, fate.wait_seconds)
        elif now >= fate.due_at:
            fate.due_at = None
            fate.wait_seconds = min(2 * fate.wait_seconds, MOST_SECONDS)
            assert fate.died_at is not None
            self.load(replace(model.order, died_ns=round(fate.died_at * 1e9)))
