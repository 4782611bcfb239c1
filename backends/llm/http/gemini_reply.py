"""Reads replies in Google's Gemini API for accounting; their bytes are passed on unchanged."""

import contextlib
from typing import Final

import msgspec

from backends.llm.base import Sink
from backends.llm.http.http_reply import ReplyReader
from backends.llm.http.native_reply import NativeReader
from backends.llm.http.openai_replies import broken
from contracts.api.generation import Delta
from contracts.api.native_answers import GeminiAnswer, GeminiCandidate, GeminiEmbeddings
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidUsage
from contracts.metering.least_tokens import least_tokens
from contracts.metering.native_reports import GeminiUsage
from contracts.metering.native_usage import usage_from_gemini
from contracts.serving.configuration import TargetSpec

_LENGTH: Final = "MAX_TOKENS"
_FILTERED: Final = frozenset(
    (
        *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
    )
)
_encode: Final = msgspec.json.Encoder().encode
_answers: Final = msgspec.json.Decoder(GeminiAnswer)
_usages: Final = msgspec.json.Decoder(GeminiUsage).decode
_embeddings: Final = msgspec.json.Decoder(GeminiEmbeddings).decode


class GeminiReader(NativeReader):
    """Reads a response, or the responses of a stream. Each states the usage so far."""

    def __init__(self, spec: TargetSpec, sink: Sink, request: AnyRequest, sent_credentials: tuple[str, ...]) -> None:
        super().__init__(spec, sink, request, sent_credentials)
        self._calls = 0

    def _deltas_in(self, data: bytes) -> tuple[Delta, ...]:
        answer = _answers.decode(data)
        if answer.error is not None:
            raise self._broken_by(data)
        self._take_facts(answer)
        found: list[Delta] = []
        for candidate in answer.candidates or ():
            found += self._deltas_of(candidate)
        if answer.candidates is None and answer.prompt_feedback is not None:
            found.append(Delta(0, finish_reason="content_filter"))
        return tuple(found)

    def _read_whole(self, body: bytes) -> None:
        answer = _answers.decode(body)
        if answer.candidates is None and answer.prompt_feedback is None:
            raise broken(self._message_in(body), f"target {self._target!r} sent a reply without candidates")
        self._take_facts(answer)
        first = answer.candidates[0] if answer.candidates else None
        self.finish_reason = "content_filter" if first is None else _finish_of(first)

    def _take_facts(self, answer: GeminiAnswer) -> None:
        if answer.model_version is not None:
            self._name(answer.model_version, None)
        usage = self._read_usage(answer.usage_metadata, _usages)
        if usage is None:
            return
        try:
            self._take(usage_from_gemini(usage))
        except InvalidUsage:
            return  # contradictory: the reply stands, its usage stays unknown

    def _keep_usage(self, usage: bytes) -> None:
        """Keep only the last usage object, which is cumulative."""
        self._said_usages = [usage]

    def _deltas_of(self, candidate: GeminiCandidate) -> list[Delta]:
        place = candidate.index
        found: list[Delta] = []
        for part in candidate.content.parts if candidate.content is not None else ():
            if part.text:
                tokens = least_tokens(part.text)
                if part.thought:
                    found.append(Delta(tokens, reasoning=part.text, reasoning_tokens=tokens, index=place))
                else:
                    found.append(Delta(tokens, part.text, index=place))
            call = part.function_call
            if call is not None:
                arguments = bytes(call.args).decode()
                function = {"name": call.name or "", "arguments": arguments}
                piece = {"index": self._calls, "id": call.id or "", "type": "function", "function": function}
                self._calls += 1
                found.append(Delta(max(least_tokens(arguments), 1), index=place, tool_calls=_encode([piece])))
        if candidate.finish_reason is not None:
            reason = "tool_calls" if self._calls and candidate.finish_reason == "STOP" else _finish_of(candidate)
            found.append(Delta(0, index=place, finish_reason=reason))
        return found


class GeminiEmbeddingReader(ReplyReader):
    """Reads a reply of embedContent or batchEmbedContents."""

    def take_whole(self, body: bytes) -> None:
        """Process the reply. Raises UpstreamBroken if it is invalid."""
        answer = self._read(body, _embeddings)
        if answer.embedding is None and answer.embeddings is None:
            raise broken(self._message_in(body), f"target {self._target!r} sent a reply without embeddings")
        if bytes(answer.usage_metadata) not in (b"", b"null"):
            with contextlib.suppress(InvalidUsage, msgspec.MsgspecError):  # the reply stands, its usage stays unknown
                self._take(usage_from_gemini(_usages(bytes(answer.usage_metadata))))
        self._name("", "")
        assert self._sink is not None
        self._sink.native()
        self._sink.whole(body)


def _finish_of(candidate: GeminiCandidate) -> str:
    reason = candidate.finish_reason or "STOP"
    if reason == _LENGTH:
        return "length"
    if reason in _FILTERED:
        return "content_filter"
    parts = candidate.content.parts if candidate.content is not None else ()
    return "tool_calls" if any([part.function_call is not None for part in parts]) else "stop"
