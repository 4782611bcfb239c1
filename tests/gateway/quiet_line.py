"""A client's connection in tests that look at what is written, and at nothing else."""

from collections.abc import Callable

from gateway.wire.exchange import Line


class QuietLine(Line):
    """A line whose client is never slow and never gone; `write` is its test's."""

    def writer(self) -> Callable[[bytes], object]:
        return self.write

    def finished(self, *, keep_alive: bool) -> None:
        pass

    def hold(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        pass

    async def drained(self) -> None:
        pass
