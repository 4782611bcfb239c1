"""A model on an engine host: prompts are sent as token ids; usage and times returned are exact.

A call that is cancelled or fails still gets the engine's account, and passes it to the sink.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from backends.llm.base import DeltaSink, ModelCall, PromptBlocks, Sink
from backends.llm.encoding_room import LARGE_BODY_BYTES
from backends.llm.host.engine_batch import NOTHING_USED, generate_all
from backends.llm.host.engine_hosts import EngineHosts
from backends.llm.host.engine_stream import EngineStream, result_within
from backends.llm.host_inputs.engine_blocks import blocks_of
from backends.llm.host_inputs.engine_completion import prompts_of
from backends.llm.host_inputs.engine_formats import FormatKey, format_key
from backends.llm.host_inputs.engine_inputs import Inputs, inputs_of
from backends.llm.host_inputs.engine_prompt import Prompt, prompt_of
from backends.llm.host_inputs.engine_scores import cosines, texts_of
from contracts.api.chat import ChatRequest, GenerationRequest
from contracts.api.completion import CompletionRequest
from contracts.api.embedding import EmbeddingRequest
from contracts.api.generation import Continuation, Result, Vectors
from contracts.api.requests import AnyRequest
from contracts.api.rerank import PairRequest
from contracts.engine.wire import Embed, Embedded, Finished, ModelHello, Sampling, Submit
from contracts.errors import (
    ConfigurationError,
    EngineUnavailable,
    InvalidRequest,
    TollkeeperError,
    UpstreamBroken,
    UpstreamError,
    UpstreamTimeout,
)
from contracts.metering.usage import Usage
from contracts.serving.configuration import TargetSpec

# How long a cancelled call waits for the engine's account: a step in progress is measured at its end.
_ACCOUNT_SECONDS: Final = 1.0  # while a client or another attempt waits for this one to end
_UNATTENDED_ACCOUNT_SECONDS: Final = 5.0  # if the client has left

_SHOWN_HASH: Final = 12  # characters of the weights' hash that are shown as the model's version

_PROMPT: Final = "prompt"  # stands for the request's field with the prompt
# An engine's error codes for invalid requests, and the field at fault.
_REQUEST_FAULTS: Final = {
    "invalid_request": None,
    "context_length_exceeded": _PROMPT,
    "invalid_grammar": "response_format",
    "invalid_continuation": _PROMPT,
    "token_out_of_range": _PROMPT,
    "unknown_adapter": "model",
}
# Error codes after which another host may serve the request.
_UNAVAILABLE: Final = frozenset({"unavailable", "overloaded", "model_not_found", "tokenizer_mismatch"})


class EngineTargetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields that a target's settings may have."""

    adapter: str = ""
    billing: object = None  # read by contracts/pricing/failure_billing.py
    unknown_fields: object = None  # read by contracts/serving/native_apis.py


class EngineTarget:
    """One model of one engine host. `spec.url` is the host's URL, `spec.model` the model's id there."""

    def __init__(self, spec: TargetSpec, resolve_key: Callable[[str], str], hosts: EngineHosts | None = None) -> None:
        if not spec.url:
            raise ConfigurationError(
                f"target {spec.id!r} of kind engine needs a url, e.g. unix:///path/engine-default.sock"
            )
        try:
            self._adapter = msgspec.convert(spec.settings, EngineTargetSettings).adapter
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"target {spec.id!r}, settings: {error}") from error
        self.spec = spec
        self._hosts = hosts or EngineHosts()
        self._host = self._hosts.join(spec.url)
        self._calls: set[asyncio.Task[object]] = set()

    async def count_input(self, call: ModelCall) -> int | None:
        """Count the tokens of the prompt or inputs; `None` if the host is not available, or if there are images.

        Only the model knows how many tokens an image takes. Prepared inputs are kept in `call`. Raises InvalidRequest,
        as `call` would.
        """
        try:
            if not isinstance(call.request, GenerationRequest):
                return (await self._prepare_inputs(call, _embedded(call.request)))[1].tokens
            _, prompts = await self._prepare(call, call.request)
            if any(prompt.images for prompt in prompts):
                return None
            return sum(len(prompt.token_ids) for prompt in prompts)
        except EngineUnavailable:
            return None

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        """Run one request to its end. Raises InvalidRequest, EngineUnavailable or another UpstreamError."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            if not isinstance(call.request, GenerationRequest):
                return await self._embed(call, _embedded(call.request), sink)
            return await self._generate_all(call, call.request, sink)
        finally:
            self._calls.discard(task)

    def can_continue(self, continuation: Continuation) -> bool:
        """Return whether the same model is ready on this host."""
        try:
            model = self._host.model(self.spec.model or continuation.model)
        except EngineUnavailable:
            return False
        stated = (continuation.weights_hash, continuation.tokenizer_hash, continuation.template_hash)
        return stated == (model.weights_hash, *format_key(model))

    async def close(self) -> None:
        """Release the host once no call uses it."""
        while self._calls:
            await asyncio.wait(self._calls)
        await self._hosts.leave(self.spec.url)

    async def _generate_all(self, call: ModelCall, request: GenerationRequest, sink: Sink) -> Result:
        try:
            model, prompts = await self._prepare(call, request)
        except (asyncio.CancelledError, TollkeeperError):
            sink.account(NOTHING_USED)
            raise
        _tell(sink, model)
        if len(prompts) == 1:
            return await self._generate(model, call, prompts[0], sink)
        return await generate_all(call, prompts, sink, partial(self._generate, model))

    async def _generate(self, model: ModelHello, call: ModelCall, prompt: Prompt, sink: DeltaSink) -> Result:
        given = call.continuation.token_ids if call.continuation is not None else ()
        stream = EngineStream(sink, len(prompt.token_ids), prompt.sampling.n, given, call.on_held)
        try:
            self._host.submit(self._submit(call, model, prompt, given), stream)
        except TollkeeperError:
            sink.account(NOTHING_USED)
            raise
        return await self._follow(call, model, stream, sink, len(given))

    async def _prepare(self, call: ModelCall, request: GenerationRequest) -> tuple[ModelHello, list[Prompt]]:
        model = self._host.model(self.spec.model or request.model)
        effort = call.reasoning_effort
        key = (*format_key(model), effort or "")
        prepared = call.prepared.get(key)
        if isinstance(prepared, list):
            return model, prepared
        if len(call.body) <= LARGE_BODY_BYTES:
            prompts = await self._prompts(call, request, model)
        else:
            work = partial(self._prompts, call, request, model)
            prompts = await self._hosts.encoding.run(call.tenant, len(call.body), work, is_parsed=True)
        call.prepared[key] = prompts
        return model, prompts

    async def _prompts(self, call: ModelCall, request: GenerationRequest, model: ModelHello) -> list[Prompt]:
        form = await self._hosts.formats.get(model)
        asked = "max_tokens" not in (call.set_fields or ())
        if isinstance(request, CompletionRequest):
            return await prompts_of(request, call.body, model, form, is_limit_asked=asked)
        assert isinstance(request, ChatRequest)
        return [await prompt_of(request, call.body, model, form, call.reasoning_effort, is_limit_asked=asked)]

    async def prompt_blocks(self, call: ModelCall) -> PromptBlocks | None:
        """Return the prompt's blocks as this host identifies them; `None` if it is away or the request generates
        nothing.

        Also works for requests that `call` will refuse. Prompts with images have a length but no block hashes.
        """
        if not isinstance(call.request, GenerationRequest):
            return None
        try:
            model, prompts = await self._prepare(call, call.request)
        except TollkeeperError:
            return None
        return await blocks_of(call, model, prompts, self._adapter)

    async def _prepare_inputs(
        self, call: ModelCall, request: EmbeddingRequest | PairRequest
    ) -> tuple[ModelHello, Inputs]:
        model = self._host.model(self.spec.model or request.model)
        key = format_key(model)
        prepared = call.prepared.get(key)
        if isinstance(prepared, Inputs):
            return model, prepared
        work = partial(self._inputs, call, request, model)
        inputs = await self._hosts.encoding.run(call.tenant, len(call.body), work, is_parsed=True)
        call.prepared[key] = inputs
        return model, inputs

    async def _inputs(self, call: ModelCall, request: EmbeddingRequest | PairRequest, model: ModelHello) -> Inputs:
        form = await self._hosts.formats.get(model)
        if isinstance(request, EmbeddingRequest):
            return await inputs_of(request, call.body, model, form)
        return await texts_of(request, call.body, model, form)

    def _submit(self, call: ModelCall, model: ModelHello, prompt: Prompt, given: tuple[int, ...]) -> Submit:
        tokenizer_hash, template_hash = format_key(model)
        return Submit(
            request_id=call.request_id.bytes,
            model=model.id,
            token_ids=prompt.token_ids,
            sampling=_capped(prompt.sampling, call.max_output),
            generated_ids=list(given),
            images=list(prompt.images),
            stop=prompt.stop,
            grammar=prompt.grammar,
            adapter=self._adapter,
            priority=call.priority,
            cache_salt=call.cache_salt,
            tenant=call.tenant,
            deadline_ns=None if call.deadline_ns is None else self._host.host_time_ns(call.deadline_ns),
            tokenizer_hash=tokenizer_hash,
            template_hash=template_hash,
            tools=prompt.tools,
            tool_choice=prompt.tool_choice,
            parse_reasoning=not prompt.is_raw,
            kept_prefixes=list(prompt.kept_prefixes),
            booked_as=b"" if call.booked_as is None else call.booked_as.bytes,
        )

    async def _follow(
        self, call: ModelCall, model: ModelHello, stream: EngineStream, sink: DeltaSink, given: int
    ) -> Result:
        """Wait for a request's end and account for it, whether it succeeds, fails or is cancelled."""
        request_id = call.request_id.bytes
        sink.attach_flow(stream.pause, stream.resume)
        final: Finished | None = None
        try:
            final = await stream.finished()
        except asyncio.CancelledError:
            self._host.abort(request_id)
            try:
                final = await stream.finished_within(_patience(call))
            finally:  # also if the client disconnects during this wait
                sink.account(self._result(model, stream, final, given))
            raise
        except UpstreamError:
            if not stream.is_complete:
                result = self._result(model, stream, None, given)
                sink.account(msgspec.structs.replace(result, continuation=_continuation(model, stream, call)))
                raise
            # The answer is complete; only the host's account is lost.
        except Exception:  # a bug of the gateway: stop the host's work
            self._host.abort(request_id)
            sink.account(self._result(model, stream, None, given))
            raise
        finally:
            self._host.forget(request_id)
        result = self._result(model, stream, final, given)
        if final is not None and (final.error_code or final.finish_reason == "error"):
            error = _error_of(self.spec.id, final.error_code, final.error_message, call.request)
            continuation = _continuation(model, stream, call) if error.retryable else None
            sink.account(msgspec.structs.replace(result, continuation=continuation))
            raise error
        return result

    def _result(self, model: ModelHello, stream: EngineStream, final: Finished | None, given: int) -> Result:
        usage = final.usage if final is not None and final.usage.is_known else stream.usage_so_far(given)
        return Result(
            usage=usage,
            count_method="exact" if usage.is_known else "none",
            finish_reason=final.finish_reason if final is not None else "",
            model=model.id,
            gap_clock="engine",
            adapter=self._adapter,
            engine_output_tokens=usage.output_tokens,
            recompute_tokens=final.recompute_tokens if final is not None else None,
            overrun_tokens=final.overrun_tokens if final is not None else None,
            wasted_tokens=final.wasted_tokens if final is not None else None,
            queue_ns=final.queue_ns if final is not None else None,
            gpu=final.gpu if final is not None else None,
            cold_start_ns=final.cold_start_ns if final is not None else None,
        )

    async def _embed(self, call: ModelCall, request: EmbeddingRequest | PairRequest, sink: Sink) -> Result:
        try:
            model, inputs = await self._prepare_inputs(call, request)
        except (asyncio.CancelledError, TollkeeperError):
            sink.account(NOTHING_USED)
            raise
        _tell(sink, model)
        key: FormatKey = format_key(model)
        message = Embed(
            request_id=call.request_id.bytes,
            model=model.id,
            inputs=inputs.token_ids,
            dimensions=request.dimensions if isinstance(request, EmbeddingRequest) else None,
            tenant=call.tenant,
            tokenizer_hash=key[0],
        )
        used = Result(usage=Usage(input_text=inputs.tokens), count_method="exact", model=model.id, gap_clock="none")
        answer: Embedded | None = None
        pending = self._host.embed(message)
        try:
            answer = await asyncio.shield(pending)
            used = _used_by(answer, used)
            vectors = self._vectors_in(answer, len(inputs.token_ids), sink, request)
            if inputs.pairs is None:
                sink.vectors(vectors)
            else:
                sink.scores(await cosines(vectors, inputs.pairs))
        except asyncio.CancelledError:
            # A client that disconnects is charged nevertheless: an embedding cannot be stopped.
            if answer is None:
                answer = await result_within(lambda: pending, _patience(call))
            sink.account(used if answer is None else _used_by(answer, used))
            raise
        finally:
            self._host.forget_embed(call.request_id.bytes)
        return used

    def _vectors_in(self, answer: Embedded, inputs: int, sink: Sink, request: AnyRequest) -> Vectors:
        if answer.error_code:
            computed = Usage(input_text=answer.input_tokens, cache_read_text=0, output_text=0)
            sink.account(msgspec.structs.replace(NOTHING_USED, usage=computed, gpu=answer.gpu))
            raise _error_of(self.spec.id, answer.error_code, answer.error_message, request)
        if answer.dimensions < 1 or len(answer.vectors) != 4 * answer.dimensions * inputs:
            raise UpstreamBroken(
                f"target {self.spec.id!r} sent {len(answer.vectors)} bytes for {inputs} vectors of "
                f"{answer.dimensions} dimensions"
            )
        return Vectors(answer.dimensions, answer.vectors)


def _capped(sampling: Sampling, max_output: int | None) -> Sampling:
    if max_output is None or max_output >= sampling.max_tokens:
        return sampling
    fewest = min(sampling.min_tokens, max_output)
    return msgspec.structs.replace(sampling, max_tokens=max_output, min_tokens=fewest)


def _continuation(model: ModelHello, stream: EngineStream, call: ModelCall) -> Continuation | None:
    """Return what another replica needs to continue; `None` with several choices: such an answer starts over."""
    request = call.request
    if not stream.token_ids or request.choice_count > 1 or stream.is_complete:
        return None
    return Continuation(request.model, tuple(stream.token_ids), model.weights_hash, *format_key(model))


def _patience(call: ModelCall) -> float:
    return _UNATTENDED_ACCOUNT_SECONDS if call.has_client_left() else _ACCOUNT_SECONDS


def _used_by(answer: Embedded, asked: Result) -> Result:
    return msgspec.structs.replace(asked, usage=Usage(input_text=answer.input_tokens), gpu=answer.gpu)


def _tell(sink: Sink, model: ModelHello) -> None:
    sink.served(model.id, model.weights_hash[:_SHOWN_HASH])


def _embedded(request: AnyRequest) -> EmbeddingRequest | PairRequest:
    assert isinstance(request, EmbeddingRequest | PairRequest), "other media are refused before a host is asked"
    return request


def _prompt_field(request: AnyRequest) -> str:
    if isinstance(request, GenerationRequest):
        return request.prompt_field
    return request.fields[1] if isinstance(request, PairRequest) else "input"


def _error_of(target: str, code: str, message: str, request: AnyRequest) -> TollkeeperError:
    if code in _REQUEST_FAULTS:
        param = _REQUEST_FAULTS[code]
        if param == _PROMPT:
            param = _prompt_field(request)
        return InvalidRequest(message, code=code, param=param)
    if code == UpstreamTimeout.code:
        return UpstreamTimeout(message)
    if code in _UNAVAILABLE:
        return EngineUnavailable(message, code=code)
    return UpstreamError(f"target {target!r} failed: {message or 'it gives no reason'}", code=code or None)
