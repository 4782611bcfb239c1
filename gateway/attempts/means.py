"""What every trial and race is made with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.attempts.health_book import HealthBook
from gateway.clock import Clock
from gateway.request_state import RequestState
from gateway.targets import TargetRegistry

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Means:
    """The neighbours of a trial. `random` gives a number from 0 to 1."""

    targets: TargetRegistry
    clock: Clock
    health: HealthBook
    random: Callable[[], float]
    sleep: Sleep
    note_sent: Callable[[RequestState], None] | None = None  # told before each call
