"""A request's first try that was made elsewhere, as on the short way, and ends in a task."""

from typing import Protocol

from contracts.api.generation import Result
from gateway.replies.progress import Progress
from gateway.replies.reply import Reply


class Begun(Protocol):
    """A first try that was made elsewhere. Times are monotonic nanoseconds except `started_at_ns`.

    Its first two times are of its request's arrival.
    """

    started_at_ns: int  # Unix
    began_ns: int

    @property
    def attempt_began_ns(self) -> int:
        """Return when the try began: its target's health and its record count from there."""

    @property
    def progress(self) -> Progress | None:
        """Give the tokens that have passed; `None` where none are seen on their way."""

    @property
    def was_tried(self) -> bool:
        """Say whether it was made."""

    def result(self, reply: Reply) -> Result:
        """Give its account, and the answer to the reply. Raises what it failed with."""
