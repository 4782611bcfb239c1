"""Reads an answer in OpenAI's shape for accounting, whoever brought it: its bytes go on to the client as they came."""

from typing import Final

import msgspec

from backends.llm.base import Sink
from backends.llm.openai_errors import message_in
from backends.llm.openai_replies import GENERATED, ReplyForm, answer_bytes, usage_in
from backends.llm.sse import data_of
from contracts.chat import ChatChunk, ChatReply, ChunkChoice, ChunkDelta
from contracts.errors import InvalidUsage, UpstreamBroken
from contracts.generation import Delta, Result
from contracts.openai_usage import usage_from_openai
from contracts.records import CountMethod
from contracts.usage import UNKNOWN_USAGE, OpenAIUsage, Usage

_chunk_decoder: Final = msgspec.json.Decoder(ChatChunk)


class AnswerReader:
    """Hands one answer to the sink, event by event or whole, and knows at its end what it was.

    `form` is how a whole reply is read; `expected` is the model's name where the answer does not say it.
    """

    # What has been read so far: of a whole reply most of it stays as it is here.
    _count_method: CountMethod = "none"
    _finish_reason = ""
    _model = ""
    _is_named = False
    _tokens = 0  # that have passed, as far as that can be seen
    _answer_bytes: int | None = None
    is_done = False  # the stream has said so
    advances = 0  # events that brought tokens or an end, rather than kept a stream alive

    def __init__(self, target: str, sink: Sink, form: ReplyForm = GENERATED, expected: str = "") -> None:
        self._target = target
        self._sink = sink
        self._form = form
        self._expected = expected
        self._usage: Usage = UNKNOWN_USAGE

    @property
    def is_complete(self) -> bool:
        """Say whether a stream's answer has come to its end."""
        return self.is_done or bool(self._finish_reason)

    def result(self) -> Result:
        """Give the account of the answer once it has ended."""
        usage = self._usage
        if self._tokens and not usage.output_text and usage.output_tokens == 0:  # a placeholder: something has passed
            self._usage = msgspec.structs.replace(self._usage, output_text=self._tokens)
            self._count_method = "estimate"
        return Result(
            usage=self._usage,
            count_method=self._count_method,
            finish_reason=self._finish_reason,
            model=self._model,
            gap_clock="gateway",
            answer_bytes=self._answer_bytes,
        )

    def take_event(self, event: bytes) -> None:
        """Take one complete server-sent event. Raises UpstreamBroken on what is no chunk, or an error."""
        if self.is_done:
            return
        data = data_of(event)
        if data == b"[DONE]":
            self.is_done = True  # ours is written after settlement
            self.advances += 1
            return
        if not data:
            return  # a comment that keeps the upstream connection alive means nothing to the client
        try:
            try:
                chunk = _chunk_decoder.decode(data)
                reports = chunk.usage is not None
            except msgspec.ValidationError:
                data_without, reports = without_usage(data)
                chunk = _chunk_decoder.decode(data_without)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken(f"target {self._target!r} sent an event that is no chunk of an answer") from error
        if chunk.error and bytes(chunk.error) != b"null":
            raise UpstreamBroken(message_in(data) or f"target {self._target!r} reported an error in its stream")
        if chunk.usage is not None:
            self.take_usage(chunk.usage)
        elif chunk.choices is None and (message := message_in(data)):  # as vLLM reported errors before 0.10
            raise UpstreamBroken(message)
        if not self._model and (chunk.model or not self._is_named):
            self._name(chunk.model, chunk.system_fingerprint)
        choices = chunk.choices
        deltas = tuple([_delta_of(choice) for choice in choices]) if choices else ()
        for delta in deltas:
            if delta.finish_reason is not None:
                self._finish_reason = delta.finish_reason or self._finish_reason
                self.advances += not delta.tokens
            self.advances += delta.tokens
            self._tokens += delta.tokens
        self.advances += not deltas
        self._sink.event(event, deltas, is_usage_only=reports and not deltas)

    def take_whole(self, body: bytes) -> None:
        """Take a whole reply. Raises UpstreamBroken on what is none."""
        form = self._form
        try:
            try:
                reply = form.decoder.decode(body)
            except msgspec.ValidationError:
                reply = form.decoder.decode(without_usage(body)[0])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken(f"target {self._target!r} sent a reply that is not a {form.name}") from error
        if getattr(reply, form.content) is None:
            raise UpstreamBroken(message_in(body) or f"target {self._target!r} sent a reply without {form.content}")
        if not isinstance(reply, ChatReply):
            self._take(usage_in(reply))
        elif reply.usage is not None:
            self.take_usage(reply.usage)
        if form is GENERATED and self._usage == UNKNOWN_USAGE:
            self._answer_bytes = answer_bytes(body)
        self._name(reply.model, reply.system_fingerprint)
        if isinstance(reply, ChatReply):
            for one in reply.choices or ():
                if one.finish_reason:
                    self._finish_reason = one.finish_reason
                    break
        self._sink.whole(body)

    def take_usage(self, reported: OpenAIUsage) -> None:
        """Take what the target says was used; one that contradicts itself stays unknown."""
        # Some servers repeat cumulative usage on every chunk: the last report holds.
        try:
            self._take(usage_from_openai(reported))
        except InvalidUsage:
            return  # contradictory: the reply stands, its usage stays unknown and visible as such

    def _take(self, usage: Usage | None) -> None:
        if usage is None:
            return
        self._usage = usage
        self._count_method = "none" if usage == UNKNOWN_USAGE else "reported"
        self._sink.report(usage, self._count_method)

    def _name(self, model: str | None, version: str | None) -> None:
        """Tell the sink what answers: as a stream's first chunk says it, or the first one that does."""
        self._is_named = True
        self._model = model or ""
        self._sink.served(model or self._expected, version or "")


def _delta_of(choice: ChunkChoice) -> Delta:
    delta = choice.delta
    if delta is None:
        return Delta(
            tokens=1 if choice.text else 0,
            text=choice.text or "",
            index=choice.index,
            finish_reason=choice.finish_reason,
        )
    if choice.stop_reason is None and _has_content_alone(delta):
        content = delta.content
        if not content:  # a role, or an end
            return Delta(0, "", "", choice.index, choice.finish_reason)
        if isinstance(content, str):
            return Delta(1, content, "", choice.index, choice.finish_reason)
    return Delta(
        tokens=1 if delta.bears_tokens else 0,
        text=delta.text,
        reasoning=delta.thought,
        index=choice.index,
        finish_reason=choice.finish_reason,
        tool_calls=_given(delta.tool_calls) if delta.tool_calls else b"",
        reasoning_tokens=1 if delta.is_reasoning else 0,
        stop=choice.stop_reason if isinstance(choice.stop_reason, str) else "",
        refusal=delta.refusal or "",
        thinking_blocks=_given(delta.thinking_blocks) if delta.thinking_blocks else b"",
    )


def _has_content_alone(delta: ChunkDelta) -> bool:
    """Say whether a delta is a piece of content and nothing else, as most are; the piece may be empty."""
    return not (
        delta.reasoning_content
        or delta.reasoning
        or delta.refusal
        or delta.tool_calls
        or delta.function_call
        or delta.audio
        or delta.thinking_blocks
    )


def only_delta(event: bytes) -> Delta | None:
    """Give what an event carries where it is a chunk of one choice that reports nothing besides; `None` otherwise."""
    try:
        chunk = _chunk_decoder.decode(data_of(event))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if chunk.usage is not None or bytes(chunk.error) not in (b"", b"null") or len(chunk.choices or ()) != 1:
        return None
    assert chunk.choices is not None
    return _delta_of(chunk.choices[0])


def _given(value: msgspec.Raw) -> bytes:
    """Give a field's JSON; nothing where it is `null`, as from servers that state every field."""
    given = bytes(value)
    return b"" if given == b"null" else given


def without_usage(data: bytes) -> tuple[bytes, bool]:
    """Give an answer's JSON without its usage, and whether it had one: where only that is wrong, the rest is good.

    Raises msgspec.DecodeError.
    """
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    had_one = fields.pop("usage", None) is not None
    return msgspec.json.encode(fields), had_one
