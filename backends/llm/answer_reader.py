"""Reads answers in OpenAI's format for accounting, whichever server they come from. Their bytes are passed on
unchanged.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar, cast

import msgspec

from backends.llm.base import Sink
from backends.llm.http.openai_replies import (
    GENERATED,
    AnyReply,
    ReplyForm,
    answer_size,
    broken,
    message_in,
    usage_in,
)
from backends.llm.http.sse import data_of
from contracts.api.chat import ChatChunk, ChunkChoice, ChunkDelta, ReplyChoice
from contracts.api.generation import Delta, Result
from contracts.errors import InvalidUsage, UpstreamBroken
from contracts.metering.least_tokens import least_call_tokens, least_tokens
from contracts.metering.openai_usage import usage_from_openai
from contracts.metering.usage import UNKNOWN_USAGE, OpenAIUsage, Usage
from contracts.pricing.service_tiers import reported_tier
from contracts.recording.records import CountMethod

# Under names of this module, because every chat needs them: compiled code looks up another's in a table.
_GENERATED: Final = GENERATED
_UNKNOWN_USAGE: Final = UNKNOWN_USAGE
_decode_chunk: Final = msgspec.json.Decoder(ChatChunk).decode
_decode_generated: Final = GENERATED.decoder.decode
_fields_of: Final = msgspec.structs.astuple
# Fields of the structs in order: one call returns all, which is faster than reading each attribute.
_ChunkFields: TypeAlias = tuple[
    list[ChunkChoice] | None, OpenAIUsage | None, str | None, str | None, msgspec.Raw, object
]
_ChoiceFields: TypeAlias = tuple[int, ChunkDelta | None, str | None, str | None, object]
_GeneratedFields: TypeAlias = tuple[list[ReplyChoice] | None, OpenAIUsage | None, str | None, str | None, object]

ReplyT = TypeVar("ReplyT")


class AnswerReader:
    """Passes one answer to the sink, event by event or whole, and collects its usage and end for the account.

    `form` is the format of a whole reply; `expected` is the model's name if the answer does not state it.
    """

    # Class-level defaults: a whole reply changes few of them.
    count_method: CountMethod = "none"
    finish_reason = ""
    model = ""
    _is_named = False
    _tokens = 0  # seen so far
    _answer_bytes: int | None = None
    _answer_words = 0
    body = b""  # of a whole answer
    served_model = ""  # as reported to the sink
    served_version = ""
    service_tier: str | None = None  # as the answer states it
    stated_cost = ""  # by the provider, as a JSON object
    sent_credentials: tuple[str, ...] = ()  # removed from error messages, which may repeat them
    is_done = False  # whether [DONE] has arrived
    advances = 0  # counts progress: tokens and ends, not keep-alives

    def __init__(self, target: str, sink: Sink | None, form: ReplyForm = GENERATED, expected: str = "") -> None:
        """Without a sink, a whole answer and the model's name are only stored here for the caller."""
        self._target = target
        self._sink = sink
        self._form = form
        self._expected = expected
        self.usage: Usage = _UNKNOWN_USAGE
        self._reply: msgspec.Struct | None = None  # kept so that freeing it can wait until the answer is sent

    @property
    def is_complete(self) -> bool:
        """Return whether the end of a stream's answer has arrived."""
        return self.is_done or bool(self.finish_reason)

    def result(self) -> Result:
        """Conclude, and return the account."""
        self.conclude()
        return self.account()

    def conclude(self) -> None:
        """Finish reading after the end of the answer: estimate the output if the server reported none."""
        usage = self.usage
        if self._tokens and not usage.output_text and usage.output_tokens == 0:  # 0 is a placeholder
            self.usage = msgspec.structs.replace(self.usage, output_text=self._tokens)
            self.count_method = "estimate"

    def account(self) -> Result:
        """Return the answer's usage and end. Call `conclude` before."""
        return Result(
            usage=self.usage,
            count_method=self.count_method,
            finish_reason=self.finish_reason,
            model=self.model,
            gap_clock="gateway",
            service_tier=self.service_tier,
            provider_usage=self.stated_cost,
            answer_bytes=self._answer_bytes,
            answer_words=self._answer_words,
        )

    def take_event(self, event: bytes) -> None:
        """Process one complete server-sent event. Raises UpstreamBroken if it is an error or not a chunk."""
        if self.is_done:
            return
        data = data_of(event)
        if data == b"[DONE]":
            self.is_done = True  # not passed on: the gateway writes its own after settlement
            self.advances += 1
            return
        if data:  # comments, which keep the upstream connection alive, are not passed on
            self._take_chunk(event, data)

    def _take_chunk(self, event: bytes, data: bytes) -> None:
        chunk, had_usage = self._chunk_in(data)
        choices, usage, model, version, error_said, tier = cast(_ChunkFields, _fields_of(chunk))
        if error_said and bytes(error_said) != b"null":
            raise broken(self._message_in(data), f"target {self._target!r} reported an error in its stream")
        if usage is not None:
            self.take_usage(usage)
        elif choices is None and (message := self._message_in(data)):  # as vLLM reported errors before 0.10
            raise broken(message, "")
        if tier is not None:
            self._take_tier(tier, None)
        if not self.model and (model or not self._is_named):
            self._name(model, version)
        deltas = self._read_choices(choices, usage is not None) if choices else ()
        self._count(deltas)
        assert self._sink is not None, "a stream goes to a sink"
        self._sink.event(event, deltas, is_usage_only=(had_usage or usage is not None) and not deltas)

    def _read_choices(self, choices: list[ChunkChoice], has_usage: bool) -> tuple[Delta, ...]:
        deltas = tuple([_delta_of(choice) for choice in choices])
        if has_usage and len(deltas) == 1 and deltas[0].tokens:
            return (self._as_reported(deltas[0]),)
        return deltas

    def _chunk_in(self, data: bytes) -> tuple[ChatChunk, bool]:
        """Return an event's chunk, and whether it had a usage object that cannot be read."""
        try:
            try:
                return _decode_chunk(data), False
            except msgspec.ValidationError:
                data_without, had_usage = without_usage(data)
                return _decode_chunk(data_without), had_usage
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken(f"target {self._target!r} sent an event that is not a chunk of an answer") from error

    def _count(self, deltas: tuple[Delta, ...]) -> None:
        for delta in deltas:
            if delta.finish_reason is not None:
                self.finish_reason = delta.finish_reason or self.finish_reason
                self.advances += not delta.tokens
            self.advances += delta.tokens
            self._tokens += delta.tokens
        self.advances += not deltas

    def _as_reported(self, delta: Delta) -> Delta:
        """Return a delta with the number of tokens by the server's running usage report, if that is more
        than was seen.
        """
        reported = (self.usage.output_tokens or 0) - self._passed()
        if self.count_method != "reported" or reported <= delta.tokens:
            return delta
        thoughts = reported if delta.reasoning_tokens else 0
        return msgspec.structs.replace(delta, tokens=reported, reasoning_tokens=thoughts)

    def _passed(self) -> int:
        """Return the number of tokens seen so far."""
        return self._tokens

    def take_whole(self, body: bytes) -> None:
        """Process a whole reply. Raises UpstreamBroken if it is not valid."""
        if self._form is _GENERATED:
            self._take_generated(body)
        else:
            self._take_other(body, self._form)
        if self._sink is None:
            self.body = body
        else:
            self._sink.whole(body)

    def _take_generated(self, body: bytes) -> None:
        reply = self._read(body, _decode_generated)
        self._reply = reply
        choices, usage, model, version, tier = cast(_GeneratedFields, _fields_of(reply))
        if choices is None:
            raise self._without_content(body)
        if tier is not None:
            self._take_tier(tier, None)
        if usage is not None:
            self.take_usage(usage)
        made = self.usage.output_text or self.usage.output_tokens  # mostly the same, and the first is faster
        if self.count_method == "none" or not made:  # "no output" beside a text is an estimate
            self._answer_bytes, self._answer_words = answer_size(body)
        self._name(model, version)
        for one in choices:
            if reason := one.finish_reason:
                self.finish_reason = reason
                break

    def _take_other(self, body: bytes, form: ReplyForm) -> None:
        decode: Callable[[bytes], AnyReply] = form.decoder.decode
        reply = self._read(body, decode)
        if getattr(reply, form.content) is None:
            raise self._without_content(body)
        self._take(usage_in(reply))
        self._name(reply.model, reply.system_fingerprint)

    def _read(self, body: bytes, decode: Callable[[bytes], ReplyT]) -> ReplyT:
        try:
            try:
                return decode(body)
            except msgspec.ValidationError:
                return decode(without_usage(body)[0])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken(f"target {self._target!r} sent a reply that is not a {self._form.name}") from error

    def _without_content(self, body: bytes) -> UpstreamBroken:
        return broken(
            self._message_in(body),
            f"target {self._target!r} sent a reply without {self._form.content}",
        )

    def _message_in(self, body: bytes) -> str:
        return message_in(body, self.sent_credentials)

    def take_usage(self, reported: OpenAIUsage) -> None:
        """Record the usage that the server reports. A contradictory report leaves it unknown."""
        if reported.service_tier is not None or reported.speed is not None:
            self._take_tier(reported.speed, reported.service_tier)
        if reported.cost is not None or reported.cost_in_usd_ticks is not None:
            self.stated_cost = _stated_cost(reported)
        # Some servers report cumulative usage in every chunk: the last report counts.
        try:
            self._take(usage_from_openai(reported))
        except InvalidUsage:
            return  # contradictory: the reply stands, its usage stays unknown and visible as such

    def _take(self, usage: Usage | None) -> None:
        if usage is None:
            return
        self.usage = usage
        is_known = usage.input_text is not None or usage.is_known  # the first check is the faster one
        self.count_method = "reported" if is_known else "none"
        if self._sink is not None:
            self._sink.report(usage, self.count_method)

    def _take_tier(self, said: object, said_besides: object) -> None:
        """Record the service tier that an answer states. The last one counts, except that standard does not replace
        another.
        """
        tier = reported_tier(said, said_besides)
        if tier is None or tier == self.service_tier or (not tier and self.service_tier):
            return
        self.service_tier = tier
        if self._sink is not None:
            self._sink.answered_at(tier)

    def _name(self, model: str | None, version: str | None) -> None:
        """Report the model and version to the sink, from the first chunk, or a later one if that does not state the
        model.
        """
        self._is_named = True
        self.model = model or ""
        self.served_model, self.served_version = model or self._expected, version or ""
        if self._sink is not None:
            self._sink.served(self.served_model, self.served_version)


def _delta_of(choice: ChunkChoice) -> Delta:
    index, delta, text, finish_reason, stop_reason = cast(_ChoiceFields, _fields_of(choice))
    if delta is None:
        return Delta(least_tokens(text) if text else 0, text or "", "", index, finish_reason)
    if stop_reason is None:
        said = cast("tuple[object, ...]", _fields_of(delta))
        content = said[0]
        if not content and _has_no_more(said):  # a role, or an end
            return Delta(0, "", "", index, finish_reason)
        if isinstance(content, str) and _has_no_more(said):
            return Delta(least_tokens(content), content, "", index, finish_reason)
    return _rich_delta(delta, index, finish_reason, stop_reason)


def _rich_delta(delta: ChunkDelta, index: int, finish_reason: str | None, stop_reason: object) -> Delta:
    """Return the delta of a chunk that contains more than text."""
    spoken, thought, calls = delta.text, delta.thought, _given(delta.tool_calls) if delta.tool_calls else b""
    tokens = _least_of(spoken, thought, delta.refusal or "", calls) if delta.bears_tokens else 0
    return Delta(
        tokens=tokens,
        text=spoken,
        reasoning=thought,
        index=index,
        finish_reason=finish_reason,
        tool_calls=calls,
        reasoning_tokens=tokens if delta.is_reasoning else 0,
        stop=stop_reason if isinstance(stop_reason, str) else "",
        refusal=delta.refusal or "",
        thinking_blocks=_given(delta.thinking_blocks) if delta.thinking_blocks else b"",
    )


def _least_of(text: str, reasoning: str, refusal: str, calls: bytes) -> int:
    """Return the minimum number of tokens of a delta with output of several kinds; at least one."""
    tokens = sum([least_tokens(one) for one in (text, reasoning, refusal) if one])
    return tokens + (least_call_tokens(calls) if calls else 0) or 1


def _has_no_more(said: tuple[object, ...]) -> bool:
    """Return whether a delta has no field except its content, which may be empty."""
    for place in range(1, len(said)):
        if said[place]:
            return False
    return True


def only_delta(event: bytes) -> Delta | None:
    """Return the delta of a chunk that has one choice and neither usage nor error; `None` for other events."""
    try:
        chunk = _decode_chunk(data_of(event))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if chunk.usage is not None or bytes(chunk.error) not in (b"", b"null") or len(chunk.choices or ()) != 1:
        return None
    assert chunk.choices is not None
    return _delta_of(chunk.choices[0])


def _given(value: msgspec.Raw) -> bytes:
    """Return a field's JSON; empty if it is `null`, as some servers write absent fields."""
    given = bytes(value)
    return b"" if given == b"null" else given


def without_usage(data: bytes) -> tuple[bytes, bool]:
    """Return an answer's JSON without its usage, and whether it had one, to read answers whose usage is malformed.

    Raises msgspec.DecodeError.
    """
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    had_one = fields.pop("usage", None) is not None
    return msgspec.json.encode(fields), had_one


def _stated_cost(reported: OpenAIUsage) -> str:
    """Return the cost that a provider states in its usage, as JSON; empty if it is not an amount."""
    stated = {"cost": reported.cost, "cost_in_usd_ticks": reported.cost_in_usd_ticks}
    amounts = {name: value for name, value in stated.items() if type(value) in (int, float) and value >= 0}
    return msgspec.json.encode(amounts).decode() if amounts else ""
