"""Timeouts of a server by phase."""

from dataclasses import dataclass

from contracts.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds: to connect, until the reply first gets on, until it does again, in total.

    It gets on with each piece of its body, unless the receiver says that a piece only kept it alive.
    """

    connect: float = 5.0
    first_byte: float = 300.0
    between: float = 60.0
    total: float = 1800.0

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "between", "total"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"timeout {name!r} must be > 0 seconds, not {getattr(self, name)}")
