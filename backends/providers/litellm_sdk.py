"""The only module that imports LiteLLM, which takes seconds. Its environment must be prepared before by `environment`,
which keeps LiteLLM from downloading prices, reading keys by itself and reporting to anyone.
"""

import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from importlib import metadata
from typing import Any, Final

import httpx
import litellm
import msgspec
from litellm.litellm_core_utils.litellm_logging import Logging

from backends.providers.base import CHAT, COMPLETIONS, EMBEDDINGS, RERANK, Account, Order
from backends.providers.failures import failure_of
from backends.providers.fields import fields_of, model_of, parameters_of
from backends.providers.rendering import Rendering, embeddings, reranking
from backends.providers.usage import reported_usage
from contracts.errors import TollkeeperError, UpstreamBroken

_GEMINI: Final = "litellm.llms.vertex_ai.gemini"
_guesses: Final[ContextVar[list[str]]] = ContextVar("guesses")  # token counts that LiteLLM guessed in this call


class LiteLlm:
    """LiteLLM as a `ProviderLibrary`, with all of its features except calls switched off."""

    def __init__(self) -> None:
        self.version = metadata.version("litellm")
        self.operations: tuple[str, ...] = (CHAT, COMPLETIONS, EMBEDDINGS, RERANK)
        _switch_off()

    async def answer(self, order: Order, account: Account) -> AsyncGenerator[bytes, None]:
        """Yield a stream's events, or one whole body. Raises TollkeeperError."""
        model = model_of(order)
        arguments = {"model": model, **fields_of(order), **parameters_of(order), **_manner(order)}
        call = _Call(order, model, account)
        try:
            if order.operation == EMBEDDINGS:
                yield call.embedded(await litellm.aembedding(**arguments))
            elif order.operation == RERANK:
                yield reranking((await litellm.arerank(**arguments)).model_dump(exclude_none=True), model)
            elif order.is_streamed:
                stream = await litellm.acompletion(**arguments)
                async with _closing(stream):
                    async for event in call.streamed(stream):
                        yield event
            else:
                yield call.whole(await litellm.acompletion(**arguments))
        except TollkeeperError:
            raise
        except Exception as error:  # all exceptions of LiteLLM are converted here
            raise failure_of(error, model) from error

    async def close(self) -> None:
        """Close connections to providers."""
        await litellm.close_litellm_async_clients()


class _Call:
    """One call's answer, converted to OpenAI's format."""

    def __init__(self, order: Order, model: str, account: Account) -> None:
        self._order = order
        self._account = account
        self._rendering = Rendering(model, is_text=order.operation == COMPLETIONS)
        self._guesses: list[str] = []
        self._found: dict[str, Any] = {}  # the latest usage in LiteLLM's format
        _guesses.set(self._guesses)

    async def streamed(self, stream: Any) -> AsyncIterator[bytes]:
        """Yield a stream's events. Raises UpstreamBroken if the provider did not end the stream."""
        end = _EndWatch(stream)
        is_complete = False
        async for chunk in stream:
            self._take_usage(stream)
            if chunk.get("usage") is not None:
                continue  # LiteLLM's own sum
            found = chunk.model_dump(exclude_none=True)
            if any(choice.get("finish_reason") for choice in found.get("choices") or ()):
                if not end.has_ended:
                    raise UpstreamBroken("the provider ended its stream before its answer was complete")
                is_complete = True
            event = self._rendering.event(found, _served(chunk))
            if event is not None:
                yield event
        self._take_usage(stream)
        usage = self._report(is_complete=is_complete)
        if usage is not None:
            yield self._rendering.usage_event(usage)

    def whole(self, reply: Any) -> bytes:
        """Return a whole answer as JSON."""
        found = reply.model_dump(exclude_none=True)
        self._found = found.get("usage") or {}
        return self._rendering.whole(found, _served(reply), self._report(is_complete=True))

    def embedded(self, reply: Any) -> bytes:
        """Return embeddings as JSON."""
        found = reply.model_dump(exclude_none=True)
        self._found = found.get("usage") or {}
        as_base64 = self._order.fields.get("encoding_format") == "base64"
        usage = self._report(is_complete=True)
        return embeddings(found, usage, as_base64=as_base64)

    def _take_usage(self, stream: Any) -> None:
        """Keep the latest usage, and clear LiteLLM's buffers, in which it keeps all chunks and copies the text every
        time.
        """
        reports = [chunk.usage for chunk in stream.chunks if getattr(chunk, "usage", None) is not None]
        stream.chunks.clear()
        stream.response_uptil_now = ""
        if reports:
            self._found = reports[-1].model_dump(exclude_none=True)
            self._report(is_complete=False)

    def _report(self, *, is_complete: bool) -> dict[str, Any] | None:
        usage = reported_usage(self._found, has_guessed=bool(self._guesses), is_complete=is_complete)
        self._account.usage = b"" if usage is None else msgspec.json.encode(usage)
        return usage


def _manner(order: Order) -> dict[str, Any]:
    """Return the arguments for timeouts, without retries, and with errors for unsupported parameters."""
    patience = order.patience
    read = max(patience.first_byte, patience.between)
    manner: dict[str, Any] = {
        "timeout": httpx.Timeout(patience.total, connect=patience.connect, read=read),
        "max_retries": 0,
    }
    if order.operation in (CHAT, COMPLETIONS):
        # Its MCP handler would call MCP servers from here, and needs libraries that are not installed.
        manner |= {"num_retries": 0, "drop_params": False, "_skip_mcp_handler": True}
    return manner


def _served(answer: Any) -> str:
    """Return the provider's name for the model that answered; empty if unknown."""
    hidden = getattr(answer, "_hidden_params", None) or {}
    return str(hidden.get("provider_response_model") or "")


@asynccontextmanager
async def _closing(stream: Any) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await stream.aclose()


class _EndWatch:
    """Detects whether the provider itself ended a stream.

    LiteLLM ends every stream with a reason, whether or not the provider gave one, and reports that in two attributes.
    For Gemini it invents a reason for every chunk, so Gemini's own chunks are checked.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._gemini_ended: bool | None = None  # `None`: not a stream of Gemini
        if stream.make_call is not None:
            self._begin = stream.make_call
            stream.make_call = self._begin_watched

    @property
    def has_ended(self) -> bool:
        """Return whether the provider ended the stream."""
        if self._gemini_ended is not None:
            return self._gemini_ended
        return bool(self._stream.received_finish_reason or self._stream.intermittent_finish_reason)

    async def _begin_watched(self, *given: Any, **named: Any) -> Any:
        events = await self._begin(*given, **named)
        if type(events).__module__.startswith(_GEMINI):
            self._gemini_ended = False
            parse = events.chunk_parser

            def parse_watched(chunk: dict[str, Any]) -> Any:
                reasons = [candidate.get("finishReason") for candidate in chunk.get("candidates") or ()]
                if any(reasons) or (chunk.get("promptFeedback") or {}).get("blockReason"):
                    self._gemini_ended = True
                return parse(chunk)

            events.chunk_parser = parse_watched
        return events


def _switch_off() -> None:
    """Switch off LiteLLM's telemetry, logs, callbacks and token counting."""
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.drop_params = False
    litellm.modify_params = False
    litellm.disable_hf_tokenizer_download = True
    litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize  # an answer may repeat itself
    for callbacks in (litellm.callbacks, litellm.success_callback, litellm.failure_callback):
        callbacks.clear()
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router", "httpx", "openai"):
        logging.getLogger(name).disabled = True  # their lines quote requests
    Logging.response_cost_calculator = _nothing
    for end in ("success", "failure"):
        setattr(Logging, f"{end}_handler", _nothing)
        setattr(Logging, f"async_{end}_handler", _nothing_later)
        setattr(Logging, f"dispatch_{end}_handlers", _nothing_later)
    counter = litellm.utils.token_counter
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "litellm"]:
        for name in [name for name, value in vars(module).items() if value is counter]:
            setattr(module, name, _count_nothing)


def _nothing(*args: object, **named: object) -> None:
    """Replaces LiteLLM's cost calculation and callbacks, which take half of its time."""


async def _nothing_later(*args: object, **named: object) -> None:
    """Replaces those that are awaited."""


def _count_nothing(*args: object, **named: object) -> int:
    """Replaces LiteLLM's tokenizers: usage that the provider did not report stays unknown instead of estimated."""
    _guesses.get([]).append("")
    return 0
