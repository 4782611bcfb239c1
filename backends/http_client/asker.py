"""The one that has asked a server something, and is told how its reply ended."""

from abc import ABC, abstractmethod

from backends.processes.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)  # tests ask, too
class Asker(ABC):
    """Has sent a request. It is a class, whose methods machine code finds sooner than a protocol's (decision 0071)."""

    __slots__ = ()

    @abstractmethod
    def reply_ended(self, error: Exception | None) -> None:
        """Note, once, that the reply has ended: well, or with what went wrong.

        An UpstreamError is the server's fault. Anything else was raised where the reply was taken, and is ours.
        """
