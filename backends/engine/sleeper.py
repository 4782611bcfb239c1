"""The interface of engines that can sleep: release their GPU memory and load it again."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Sleeper(Protocol):
    """An engine that can sleep and wake. Called by the stepping thread, between steps, without running requests.

    Level 1 keeps the weights in host memory, level 2 drops and reloads them. `can_sleep` may be a plain attribute; if
    it is missing, the engine can sleep.
    """

    def sleep(self, level: int, /) -> None:
        """Release memory."""

    def wake(self) -> None:
        """Restore the memory; may take seconds."""


def sleeper(engine: object) -> Sleeper | None:
    """Return the engine if it can sleep, else `None`."""
    if isinstance(engine, Sleeper) and getattr(engine, "can_sleep", True):
        return engine
    return None
