"""The seam between the host and the library that knows the providers: an order, an account, a library."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from contracts.engine.wire import Patience

CHAT, COMPLETIONS, EMBEDDINGS, RERANK = "/chat/completions", "/completions", "/embeddings", "/rerank"


@dataclass(frozen=True, slots=True)
class Order:
    """One request to one provider. `credentials` holds secrets, by the library's parameter, and is never shown."""

    operation: str
    fields: Mapping[str, Any]  # the body, as OpenAI names its fields
    patience: Patience
    url: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_streamed(self) -> bool:
        """Return whether the answer is to come in pieces."""
        return self.fields.get("stream") is True


@dataclass(slots=True)
class Account:
    """What a call has used: OpenAI's usage object as JSON, as far as the provider has reported it."""

    usage: bytes = b""


class ProviderLibrary(Protocol):
    """Calls providers. One for each host."""

    version: str
    operations: tuple[str, ...]

    def answer(self, order: Order, account: Account) -> AsyncGenerator[bytes, None]:
        """Return a stream's events, or one whole body, in OpenAI's shape.

        Closing or cancelling it ends the call at the provider. Raises TollkeeperError, whatever fails.
        """

    async def close(self) -> None:
        """Close connections to providers."""
