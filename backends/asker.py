"""Whoever has asked a server something, and is told how its reply ended."""

from abc import ABC, abstractmethod

from backends.native import mypyc_attr
from contracts.errors import UpstreamError


@mypyc_attr(allow_interpreted_subclasses=True)  # tests ask, too
class Asker(ABC):
    """Has sent a request. It is a class, whose methods machine code finds sooner than a protocol's (decision 0071)."""

    __slots__ = ()

    @abstractmethod
    def reply_ended(self, error: UpstreamError | None) -> None:
        """Take note, once, that the reply has ended: well, or with what went wrong."""
