"""Interfaces of guardrail stages: detectors and other kinds."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from contracts.guardrails.finding import About, Finding, Shown


@runtime_checkable
class Detector(Protocol):
    """Finds things in a text by looking at nothing else: the same text, the same findings.

    `patterns` are regular expressions in RE2's syntax. A text in which none of them matches is not looked at, and
    whatever is found in one lies where one of them matches: so a stream holds back what could become such a match,
    and nothing else. Empty: every text is looked at, and answers only once they are whole.
    """

    patterns: tuple[str, ...]

    def find(self, text: str, role: str) -> Sequence[Finding]:
        """Find things in a plain text, in their order."""


@runtime_checkable
class DetectorOfRequests(Protocol):
    """A detector that is another one for each request, such as of what was planted in its prompt."""

    patterns: tuple[str, ...]

    def for_request(self, about: About) -> Detector:
        """Return the request's own."""


@runtime_checkable
class AwaitedDetector(Protocol):
    """Finds things by asking someone: called once all others of its side have let the texts pass."""

    async def look(self, shown: Sequence[Shown], about: About) -> Sequence[Finding]:
        """Look at all texts. It keeps a time limit of its own, and return itself what holds if nobody answers."""


@runtime_checkable
class Watch(Protocol):
    """Looks at requests as they come, one after the other. It may raise an error of its own."""

    def watch(self, shown: Sequence[Shown], about: About) -> Sequence[Finding]:
        """Look at a request's texts. Raises a TollkeeperError where the request is not to be served now."""


@runtime_checkable
class Marker(Protocol):
    """Adds something to what a model is told."""

    def mark(self, about: About) -> str:
        """Return a line for the end of the system prompt; empty: none."""


@runtime_checkable
class Closing(Protocol):
    """A detector that has something in progress."""

    async def close(self) -> None:
        """End it."""


AnyDetector = Detector | DetectorOfRequests | AwaitedDetector | Watch | Marker
