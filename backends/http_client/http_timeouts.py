"""Timeouts of HTTP requests by phase."""

from dataclasses import dataclass

from contracts.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds: to connect, until the first progress of the reply, between two, and in total.

    Each piece of the body is progress, unless the receiver reports that it only kept the connection alive.
    """

    connect: float = 5.0
    first_byte: float = 300.0
    between: float = 60.0
    total: float = 1800.0

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "between", "total"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"timeout {name!r} must be > 0 seconds, not {getattr(self, name)}")
