"""A parsed export request before it is spooled, and the interface of steps that filter or refuse it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from collector.processors.signal import SignalProcessor


@dataclass(slots=True)
class Arrival:
    """A parsed export request. Steps remove records from `message` with `refuse` or `take_over`.

    `body` is the request as sent; it is `None` once `message` differs from it.
    """

    processor: SignalProcessor[Any]
    message: Any
    body: bytes | None
    records: int  # number sent, readable or not
    rejected: Counter[str] = field(default_factory=Counter)  # by cause; reported to the sender
    reasons: list[str] = field(default_factory=list)

    @property
    def parts(self) -> Any:
        """Return the message's parts (OTLP's resource logs, spans or metrics), each with one resource."""
        return getattr(self.message, self.processor.parts)

    def refuse(self, part: Any, cause: str, reason: str) -> int:
        """Remove a part's third-party records, report `reason` to the sender, and return the number removed."""
        taken = self.processor.drop_foreign(part)
        if taken:
            self.body = None
            self.rejected[cause] += taken
            if reason not in self.reasons:
                self.reasons.append(reason)
        return taken


class ArrivalStep(Protocol):
    """A step between receiving and spooling. Must be thread-safe.

    Raises LimitExceeded if the sender should send the whole request again later; nothing of it is stored then.
    """

    def admit(self, arrival: Arrival) -> None:
        """Remove records that must not be stored from a request."""
