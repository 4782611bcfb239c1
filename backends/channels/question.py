"""A question to someone else's server, and what comes of it: the seam, without what it takes to ask."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back: a body, or in words for an operator why there is none."""

    body: bytes = b""
    fault: str = ""


class Questions(Protocol):
    """Asks servers."""

    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float, most_bytes: int
    ) -> HttpAnswer:
        """Post JSON and read the answer within the time. Never raises."""
        ...
