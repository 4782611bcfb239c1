"""Targets that can send a request as it came, without waiting for anything: what plans need of them.

They are classes rather than protocols. In machine code a protocol's method is looked up by its name, which touches some
twenty lines of memory a call; a class has it at a known place (decision 0071).
"""

from abc import ABC, abstractmethod

from backends.http_client.http_connection import Asker
from backends.llm.base import PassingSink, Sink
from contracts.api.chat import TranslatedChat
from contracts.api.generation import Result
from contracts.api.native import NativeApi
from contracts.api.requests import AnyRequest
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.recording.records import CountMethod


class SentRequest(ABC):
    """A request that was sent at once, and its reply, of which the most is said here once it is concluded."""

    __slots__ = (
        "usage",
        "count_method",
        "finish_reason",
        "model",
        "body",
        "served_model",
        "served_version",
        "service_tier",
    )

    def __init__(self) -> None:
        self.usage: Usage = UNKNOWN_USAGE
        self.count_method: CountMethod = "none"
        self.finish_reason = ""
        self.model = ""  # the target's name for what it served
        self.body = b""  # of a whole answer that no sink takes
        self.served_model = ""  # as `Sink.served` is told it
        self.served_version = ""
        self.service_tier = ""  # that it says it was answered at, where that is not the standard one

    @abstractmethod
    def conclude(self, error: Exception | None) -> None:
        """Know what the reply was, which has ended like this. Raises SendAgain, or what `Target.call` would."""

    @abstractmethod
    def account(self) -> Result:
        """Return the account of a reply that is concluded, as `Target.call` does."""

    @abstractmethod
    def release(self) -> None:
        """Release the connection: at the reply's end it is kept, before it is closed."""

    @abstractmethod
    def pause(self) -> None:
        """Stop reading the reply, its client being slow."""

    @abstractmethod
    def resume(self) -> None:
        """Read again."""


class QuickTarget(ABC):
    """A target that can send a request as it came, without waiting for anything."""

    @abstractmethod
    def passes_on(self, model: str, native: NativeApi | None = None) -> bool:
        """Return whether chats that ask for a model by this name go out byte for byte, unless the gateway sets
        something in them. In an API of their own (`native`) the model's name may be another.
        """

    @abstractmethod
    def send_at_once(
        self,
        path: str,
        request: AnyRequest,
        body: bytes,
        request_id: str,
        trace: str,  # header lines by which the target goes on with the caller's trace, each with its line end
        sink: PassingSink | None,
        asker: Asker,
    ) -> SentRequest | None:
        """Send a request where there is a connection for it now; `None` if there is none.

        A stream's reply goes to the sink. What comes whole needs none: it is kept for the one that concludes it.
        """

    @abstractmethod
    def send_native_at_once(
        self, request: TranslatedChat, request_id: str, trace: str, sink: Sink, asker: Asker
    ) -> SentRequest | None:
        """Send a request in the API that it came in as `send_at_once` does. Its reply goes to the sink in any case."""
