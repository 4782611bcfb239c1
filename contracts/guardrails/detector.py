"""Interfaces of guardrail stages: detectors and other kinds."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from contracts.guardrails.finding import About, Finding, Shown


@runtime_checkable
class Detector(Protocol):
    """A detector whose findings in a text depend on that text alone.

    `patterns` are regular expressions in RE2's syntax. A text that none of them matches is skipped, and every finding
    lies within a match, so that a stream holds back only what could become a match. If it is empty, every text is
    inspected, and answers are inspected only when they are complete.

    A match that is verified before it counts contains no `"`. So what is found in a text is also found in JSON that
    contains the text, and a body in which nothing is found need not be parsed.
    """

    patterns: tuple[str, ...]

    def find(self, text: str, role: str, matching: Sequence[int] | None = None) -> Sequence[Finding]:
        """Find things in a plain text, in order of position. With an empty role, find what would be found for any role.

        `matching` are the indices of the patterns that match in the text, in order; `None`: not known.
        """


@runtime_checkable
class DetectorOfRequests(Protocol):
    """A detector that differs for each request, for example by what was planted in its prompt."""

    patterns: tuple[str, ...]

    def for_request(self, about: About) -> Detector:
        """Return the detector for a request."""


@runtime_checkable
class AwaitedDetector(Protocol):
    """A detector that calls another service, after all other detectors of its side have passed the texts."""

    async def look(self, shown: Sequence[Shown], about: About) -> Sequence[Finding]:
        """Inspect all texts. It has its own time limit, and its own result if the service does not answer."""


@runtime_checkable
class Watch(Protocol):
    """A detector that sees the requests in order of arrival, and may refuse one by raising a TollkeeperError."""

    def watch(self, shown: Sequence[Shown], about: About) -> Sequence[Finding]:
        """Inspect a request's texts. Raises a TollkeeperError if the request must not be served now."""


@runtime_checkable
class Marker(Protocol):
    """A guardrail stage that adds text to a model's instructions."""

    def mark(self, about: About) -> str:
        """Return a line for the end of the system prompt; empty: none."""


@runtime_checkable
class Closing(Protocol):
    """A detector with work or connections to end."""

    async def close(self) -> None:
        """Stop the detector's work and close its connections."""


AnyDetector = Detector | DetectorOfRequests | AwaitedDetector | Watch | Marker
