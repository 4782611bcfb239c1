"""An engine that can give its GPU's memory back and keep the model at hand."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Sleeper(Protocol):
    """Both are called by the thread that steps, between two steps, with no request running.

    Level 1 keeps the weights in host memory, level 2 drops them and reads them again. `can_sleep` may be a plain
    attribute; where it is missing the engine can.
    """

    def sleep(self, level: int, /) -> None:
        """Release memory."""

    def wake(self) -> None:
        """Accept it again; may take seconds."""


def sleeper(engine: object) -> Sleeper | None:
    """Return an engine that can sleep as it is set up, else `None`."""
    if isinstance(engine, Sleeper) and getattr(engine, "can_sleep", True):
        return engine
    return None
