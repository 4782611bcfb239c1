"""A hosted provider's model, called through LiteLLM in the provider host, which alone has the credentials.

The host returns replies in OpenAI's format, whose bytes are passed on unchanged.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal

import msgspec

from backends.llm.answer_reader import AnswerReader
from backends.llm.base import ModelCall, Sink
from backends.llm.host.engine_batch import NOTHING_USED
from backends.llm.host.engine_hosts import EngineHosts
from backends.llm.host.host_connection import HostWords
from backends.llm.http.http_settings import read_timeouts
from backends.llm.http.openai_body import BodyFields, ThinkingCapField, body_for
from backends.llm.http.openai_replies import form_for
from backends.llm.provider_stream import ProviderStream
from backends.secrets.sealed_references import is_stored, token_of
from contracts.api.generation import Continuation, Result
from contracts.engine.wire import Invoke, Invoked, ProviderTimeouts
from contracts.errors import (
    ConfigurationError,
    ConnectTimeout,
    EngineUnavailable,
    InvalidRequest,
    TargetMisconfigured,
    TollkeeperError,
    Unavailable,
    UnsupportedParameter,
    UpstreamBroken,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from contracts.metering.usage import OpenAIUsage
from contracts.serving.configuration import TargetSpec

PROVIDER_WORDS: Final = HostWords(
    "provider host",
    "`tollkeeper up` starts it within seconds of the first target that needs it (the first time it installs LiteLLM, "
    "about a minute); elsewhere run `python -m backends.providers`",
)

_ACCOUNT_SECONDS: Final = 1.0  # how long a cancelled call waits for the host's account of it

_usage_decoder: Final = msgspec.json.Decoder(OpenAIUsage)
# Errors of the request, whose message gets no target's name.
_REQUEST_FAULTS: Final[Mapping[str, type[TollkeeperError]]] = {
    one.code: one for one in (InvalidRequest, UnsupportedParameter, UpstreamRejected)
}
_TARGET_FAULTS: Final[Mapping[str, type[TollkeeperError]]] = {
    one.code: one
    for one in (
        *(TargetMisconfigured, UpstreamRateLimited, UpstreamTimeout, UpstreamUnreachable),
        *(UpstreamOverloaded, UpstreamBroken),
    )
} | {Unavailable.code: EngineUnavailable}


class ProviderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields that a target's settings may have. Timeouts are parsed separately for better error messages."""

    timeouts: object = None
    billing: object = None  # read by contracts/pricing/failure_billing.py
    unknown_fields: object = None  # read by contracts/serving/native_apis.py
    params: dict[str, Any] = {}
    credentials: dict[str, str] = {}
    output_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sends_reasoning_effort: bool = True
    thinking_cap_field: ThinkingCapField | None = None  # `None`: derived from the provider


class ProviderTarget:
    """One model of one provider. `spec.model` is LiteLLM's name for it; `spec.url` replaces the provider's own URL.

    `spec.key_ref` is passed to the host, which resolves it if its settings allow that.
    """

    def __init__(
        self, spec: TargetSpec, resolve_key: Callable[[str], str], hosts: EngineHosts | None = None, url: str = ""
    ) -> None:
        if "/" not in spec.model:
            raise ConfigurationError(
                f"target {spec.id!r} of kind litellm needs a model with its provider before it, "
                "such as anthropic/claude-sonnet-4-5"
            )
        if hosts is None:
            raise ConfigurationError(f"target {spec.id!r} of kind litellm: this process knows no provider host")
        try:
            self._settings = msgspec.convert(spec.settings, ProviderSettings)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"target {spec.id!r}, settings: {error}") from error
        for reference in (spec.key_ref, *self._settings.credentials.values()):
            if is_stored(reference):
                token_of(reference)
            elif reference and not reference.startswith(("env:", "file:")):
                raise ConfigurationError(
                    f"target {spec.id!r}: a key_ref is 'env:NAME' or 'file:PATH', never the credential itself"
                )
        self.spec = spec
        self._fields = BodyFields(
            spec.model,
            self._settings.output_limit_field,
            self._settings.sends_reasoning_effort,
            sends_cache_control=True,
            thinking_cap_field=_cap_field(spec.model, self._settings.thinking_cap_field),
        )
        times = read_timeouts(spec)
        self._patience = ProviderTimeouts(
            connect=times.connect, first_byte=times.first_byte, between=times.between, total=times.total
        )
        self._parameters = msgspec.json.encode(self._settings.params) if self._settings.params else b""
        self._url = url
        self._hosts = hosts
        self._host = hosts.join(url)
        self._calls: set[asyncio.Task[object]] = set()

    async def count_input(self, call: ModelCall) -> int | None:
        """Return `None`: only the provider has the tokenizer."""
        return None

    def can_continue(self, continuation: Continuation) -> bool:
        """Return `False`: providers cannot continue an answer."""
        return False

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        """Run one request to its end. Raises InvalidRequest, UpstreamRejected, or UpstreamError."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await self._call(call, sink)
        finally:
            self._calls.discard(task)

    async def close(self) -> None:
        """Release the host once no call uses it."""
        while self._calls:
            await asyncio.wait(self._calls)
        await self._hosts.leave(self._url)

    async def _call(self, call: ModelCall, sink: Sink) -> Result:
        request_id = call.request_id.bytes
        reader = AnswerReader(self.spec.id, sink, form_for(call.request), self.spec.model)
        is_streamed = call.request.is_streamed
        stream = ProviderStream(reader.take_event if is_streamed else reader.take_whole)
        try:
            self._host.invoke(self._invoke(call), stream)
        except TollkeeperError:
            sink.account(NOTHING_USED)
            raise
        hold = partial(self._host.hold, request_id)
        sink.attach_flow(partial(hold, is_held=True), partial(hold, is_held=False))
        try:
            end = await stream.invoked()
        except asyncio.CancelledError:
            self._host.abort(request_id)
            end_of_it = await stream.invoked_within(_ACCOUNT_SECONDS)
            if end_of_it is not None:
                _take_usage(reader, end_of_it)
            raise
        except Exception:  # also bugs of the gateway: stop the host's work
            self._host.abort(request_id)
            raise
        finally:
            self._host.forget(request_id)
        _take_usage(reader, end)
        if end.error_kind:
            raise self._error_of(end)
        if is_streamed and not reader.is_complete:
            raise UpstreamBroken(f"target {self.spec.id!r} ended its stream before its answer was complete")
        return reader.result()

    def _invoke(self, call: ModelCall) -> Invoke:
        return Invoke(
            request_id=call.request_id.bytes,
            operation=call.path,
            body=body_for(call, self._fields),
            patience=self._patience,
            url=self.spec.url,
            key_ref=self.spec.key_ref,
            credentials=self._settings.credentials,
            parameters=self._parameters,
        )

    def _error_of(self, end: Invoked) -> TollkeeperError:
        fault = _REQUEST_FAULTS.get(end.error_kind)
        if fault is not None:
            refused = fault(end.error_message, code=end.error_code, param=end.param or None)
            refused.upstream_status, refused.quote = end.upstream_status, refused.message
            return refused
        kind = ConnectTimeout if end.is_unsent else _TARGET_FAULTS.get(end.error_kind, UpstreamError)
        error = kind(
            f"target {self.spec.id!r}: {end.error_message}",
            code=end.error_code,
            retry_after_seconds=end.retry_after_seconds,
        )
        error.upstream_status = end.upstream_status
        if end.upstream_status is not None:
            error.quote = error.message
        return error


def _cap_field(model: str, stated: ThinkingCapField | None) -> ThinkingCapField:
    """Return the field for a cap on reasoning tokens: Anthropic's models have a budget."""
    if stated is not None:
        return stated
    return "thinking" if model.startswith("anthropic/") or "claude" in model else ""


def _take_usage(reader: AnswerReader, end: Invoked) -> None:
    """Record the usage that the provider reported, even if the answer was cut short."""
    if not end.usage:
        return
    with contextlib.suppress(msgspec.MsgspecError):  # unreadable usage stays unknown
        reader.take_usage(_usage_decoder.decode(end.usage))
