"""A request on its way into the spool, and the one shape of what may look at it, take from it, or refuse it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from collector.processors.signal import SignalProcessor


@dataclass(slots=True)
class Arrival:
    """An export request that was read. Steps take records out of `message` by `refuse` or `take_over`.

    `body` is the request as sent; it is `None` once `message` differs from it.
    """

    processor: SignalProcessor[Any]
    message: Any
    body: bytes | None
    records: int  # as sent, readable or not
    rejected: Counter[str] = field(default_factory=Counter)  # by cause; the sender is told
    reasons: list[str] = field(default_factory=list)

    @property
    def parts(self) -> Any:
        """The message's parts, each with a resource."""
        return getattr(self.message, self.processor.parts)

    def refuse(self, part: Any, cause: str, reason: str) -> int:
        """Remove the foreign records from a part, tell the sender why, and return how many they were."""
        taken = self.processor.drop_foreign(part)
        if taken:
            self.body = None
            self.rejected[cause] += taken
            if reason not in self.reasons:
                self.reasons.append(reason)
        return taken


class ArrivalStep(Protocol):
    """One step between receipt and spool; called from several threads.

    Raises LimitExceeded if the whole request is to come again later; then nothing of it was kept.
    """

    def admit(self, arrival: Arrival) -> None:
        """Look at a request, and take from it what must not go on."""
