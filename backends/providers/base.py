"""The interface between the provider host and the library that calls providers."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from contracts.engine.wire import ProviderTimeouts

CHAT, COMPLETIONS, EMBEDDINGS, RERANK = "/chat/completions", "/completions", "/embeddings", "/rerank"


@dataclass(frozen=True, slots=True)
class Order:
    """One request to one provider. `credentials` are secrets by the library's parameter name, and are never shown."""

    operation: str
    fields: Mapping[str, Any]  # the body, with OpenAI's field names
    patience: ProviderTimeouts
    url: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_streamed(self) -> bool:
        """Return whether the answer is to be streamed."""
        return self.fields.get("stream") is True


@dataclass(slots=True)
class Account:
    """The usage of a call: OpenAI's usage object as JSON, as far as the provider has reported it."""

    usage: bytes = b""


class ProviderLibrary(Protocol):
    """Calls providers. One instance per host."""

    version: str
    operations: tuple[str, ...]

    def answer(self, order: Order, account: Account) -> AsyncGenerator[bytes, None]:
        """Yield a stream's events, or one whole body, in OpenAI's format; update `account` on the way.

        Closing or cancelling it ends the call at the provider. Raises only TollkeeperError.
        """

    async def close(self) -> None:
        """Close connections to providers."""
