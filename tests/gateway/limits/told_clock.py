"""A clock of Redis that tests move by hand: the script is told the time instead of asking the server for it."""

from backends.counters.server_clock import ServerClock
from tests.gateway.limits.counting import ManualClock


class ToldClock(ServerClock):
    """The time of a manual clock, for this process and for Redis."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock.now_ns, clock.now_ns)
        self._clock = clock
        self.offset_ns = 0

    @property
    def told_us(self) -> int:
        return self._clock.now_ns() // 1000

    def error_ns(self, now_ns: int) -> int:
        return 0

    def expected_us(self, now_ns: int) -> int:
        return now_ns // 1000

    def observe(self, sent_ns: int, received_ns: int, server_ns: int) -> None:
        """There is one clock."""
