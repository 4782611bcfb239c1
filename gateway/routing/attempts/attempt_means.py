"""Dependencies of every attempt and race."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.config.targets import TargetRegistry
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState
from gateway.routing.health.health_book import HealthBook

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AttemptMeans:
    """The dependencies of attempts. `random` returns a number from 0 to 1."""

    targets: TargetRegistry
    clock: Clock
    health: HealthBook
    random: Callable[[], float]
    sleep: Sleep
    note_sent: Callable[[RequestState], None] | None = None  # called before each call
