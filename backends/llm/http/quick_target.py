"""Interface of targets that can send a request unchanged without waiting, which plans use.

Classes instead of protocols: compiled code looks up a protocol's method by name, which is slower (decision 0071).
"""

from abc import ABC, abstractmethod

from backends.http_client.http_connection import ReplyEndListener
from backends.llm.base import PassingSink, Sink
from contracts.api.chat import TranslatedChat
from contracts.api.generation import Result
from contracts.api.native import NativeApi
from contracts.api.requests import AnyRequest


class SentRequest(ABC):
    """A request that was sent at once, with the facts of its reply after `conclude`."""

    __slots__ = ("body", "served_model", "served_version")

    def __init__(self) -> None:
        self.body = b""  # of a whole answer that no sink takes
        self.served_model = ""  # as passed to `Sink.served`
        self.served_version = ""

    @abstractmethod
    def conclude(self, error: Exception | None) -> None:
        """Read the result of a reply that ended with `error` (`None`: well). Raises SendAgain, or what `Target.call`
        would.
        """

    @abstractmethod
    def account(self) -> Result:
        """Return the account, like `Target.call`. Call `conclude` before."""

    @abstractmethod
    def release(self) -> None:
        """Release the connection for reuse; before the reply's end, close it."""

    @abstractmethod
    def pause(self) -> None:
        """Pause reading the reply because its client is slow."""

    @abstractmethod
    def resume(self) -> None:
        """Resume reading."""


class QuickTarget(ABC):
    """A target that can send a request unchanged without waiting."""

    @abstractmethod
    def passes_on(self, model: str, native: NativeApi | None = None) -> bool:
        """Return whether chats for a model are sent byte for byte, unless the gateway sets something in them.

        In an API of their own (`native`), the model's name may be replaced.
        """

    @abstractmethod
    def send_at_once(
        self,
        path: str,
        request: AnyRequest,
        body: bytes,
        request_id: str,
        trace: str,  # header lines that continue the caller's trace, each with its line end
        sink: PassingSink | None,
        asker: ReplyEndListener,
    ) -> SentRequest | None:
        """Send a request if a connection is idle; return `None` if not.

        A stream's reply goes to `sink`. A whole reply needs no sink: it is stored in the SentRequest.
        """

    @abstractmethod
    def send_native_at_once(
        self, request: TranslatedChat, request_id: str, trace: str, sink: Sink, asker: ReplyEndListener
    ) -> SentRequest | None:
        """Send a request in the API in which it arrived, as `send_at_once` does. Its reply always goes to the sink."""
