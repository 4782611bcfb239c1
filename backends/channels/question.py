"""The interface of questions to external servers, without the HTTP client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A server's answer: its body, or `fault`, the reason for operators why there is none."""

    body: bytes = b""
    fault: str = ""


class Questions(Protocol):
    """Sends questions to external servers."""

    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float, most_bytes: int
    ) -> HttpAnswer:
        """Post JSON and read the answer within the time. Never raises."""
        ...
