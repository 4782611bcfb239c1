"""The response object and the events of its stream, in OpenAI's shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from contracts.api.chat import TranslatedChat
from contracts.api.generation import Delta
from contracts.api.responses import NULL, OfferedTool
from contracts.errors import InvalidRequest, LimitExceeded, TollkeeperError, UpstreamRateLimited, UpstreamRejected
from contracts.metering.usage import Usage
from contracts.objects.responses import response_id
from gateway.apis.rendering import AnswerRenderer, WholeText
from gateway.apis.responses.asked import AskedResponse
from gateway.apis.responses.output import CUT_REASONS, Fields, Output
from gateway.apis.responses.reading import is_given
from gateway.apis.responses.wording import in_own_words
from gateway.request.clock import Clock

_encode: Final = msgspec.json.Encoder().encode
_fields: Final = msgspec.json.Decoder(Fields)
_DATA: Final = b"\ndata: "
_STOPPED: Final = "stop"


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """Common fields of every event of a response's stream."""

    request_id: UUID
    created_unix: int
    clock: Clock
    asked: AskedResponse
    chat: TranslatedChat  # with what the model's route sets


def _tier(answered: str | None, asked: str | None) -> str:
    """Return the name of the service tier as OpenAI does: the one that answered, else the requested one."""
    return (answered or "default") if answered is not None else asked or "auto"


class ResponseRenderer(AnswerRenderer):
    """Renders one response, as events or complete."""

    def __init__(self, facts: ResponseFacts) -> None:
        self._facts = facts
        self._sequence = 0
        self._events: list[bytes] = []
        self._is_opened = False
        self._output = Output(facts.request_id, self._tell, _spaced(facts.asked))
        self.ended_by: TollkeeperError | None = None  # what of ours cut it
        self.service_tier: str | None = None  # that the target says it answers at
        self.response: Fields = {}  # as the client gets it at the end

    def opening(self, index: int) -> bytes:
        """Render the events that open the stream."""
        self._open()
        return self._told()

    def delta(self, delta: Delta) -> bytes:
        """Render a delta. If it ends the answer, also render the ends of the items."""
        self._output.take(delta)
        return self._told()

    def new_choice(self) -> "WholeResponse":
        """Return an empty non-streamed answer, to be assembled from deltas."""
        return WholeResponse(self._facts)

    def ending(self, index: int, why: TollkeeperError) -> bytes:
        """Render the ends of the items of an answer that the gateway cut."""
        self._open()
        self.ended_by = why
        self._output.finish(why.ends_with)
        return self._told()

    def closing(self, usage: Usage, *, wants_usage: bool) -> bytes:
        """Render the stream's last event."""
        self._open()
        self._output.finish(self._output.finish_reason or _STOPPED)
        self.response = self._ended(self._output, usage)
        self._tell(f"response.{self.response['status']}", {"response": self.response})
        return self._told()

    def whole(self, choices: Sequence[WholeText], usage: Usage) -> bytes:
        """Render a complete answer."""
        first = choices[0] if choices else self.new_choice()
        assert isinstance(first, WholeResponse)
        first.output.finish(first.finish_reason or _STOPPED)
        self.response = self._ended(first.output, usage)
        return _encode(self.response)

    def take_end(self, end: bytes, *, is_streamed: bool) -> None:
        """Adopt the state of the renderer that rendered this end: a complete response, or a stream's last events."""
        if not is_streamed:
            self.response = _fields.decode(end)
            return
        last = _fields.decode(end[end.rindex(_DATA) + len(_DATA) :])
        self.response, self._sequence = last["response"], last["sequence_number"] + 1

    def unkept(self, why: TollkeeperError, *, is_streamed: bool) -> bytes:
        """Render the end again for a response that could not be stored: it says so."""
        notes = {**self.response.get("tollkeeper", {}), "not_stored": cause(why)}
        self.response = {**self.response, "store": False, "tollkeeper": notes}
        if not is_streamed:
            return _encode(self.response)
        self._sequence -= 1  # in place of the event that was rendered last
        self._tell(f"response.{self.response['status']}", {"response": self.response})
        return self._told()

    def failure(self, error: TollkeeperError) -> bytes:
        """Render the event that ends a stream in progress after a failure."""
        error = in_own_words(error)
        failed = {
            **self._object("failed", self._output.rendered()),
            "store": False,
            "error": {"code": _error_code(error), "message": error.message},
            "tollkeeper": {"error": {"code": error.error_code, "type": error.kind, "param": error.param}},
        }
        self._open()
        self._tell("response.failed", {"response": failed})
        return self._told()

    def _open(self) -> None:
        if not self._is_opened:
            self._is_opened = True
            begun = self._object("in_progress", [])
            self._tell("response.created", {"response": begun})
            self._tell("response.in_progress", {"response": begun})

    def _tell(self, kind: str, fields: Fields) -> None:
        data = _encode({"type": kind, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        self._events.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    def _told(self) -> bytes:
        events, self._events = self._events, []
        return events[0] if len(events) == 1 else b"".join(events)

    def _ended(self, output: Output, usage: Usage) -> Fields:
        why = self.ended_by
        reason = CUT_REASONS.get(output.finish_reason or "" if why is None else why.ends_with)
        ended = self._object("completed" if reason is None else "incomplete", output.rendered())
        if reason is None:
            ended["completed_at"] = self._facts.clock.wall_ns() // 1_000_000_000
        else:
            ended["incomplete_details"] = {"reason": reason}
        if why is not None:
            ended["tollkeeper"] = {"ended_by": cause(why)}
        ended["usage"] = response_usage(usage)
        return ended

    def _object(self, status: str, output: list[Fields]) -> Fields:
        """Return the response object. Fields that neither request nor route states are `null`: the model's default
        applies.
        """
        facts, asked = self._facts, self._facts.asked
        request = asked.request
        reasoning, text = request.reasoning, request.text
        return {
            "id": response_id(facts.request_id),
            "object": "response",
            "created_at": facts.created_unix,
            "status": status,
            "background": False,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": request.max_tool_calls,
            "metadata": request.metadata or {},
            "model": request.model,
            "output": output,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "prompt_cache_key": request.prompt_cache_key,
            "reasoning": {
                "effort": reasoning.effort if reasoning else None,
                "summary": None,
            },
            "safety_identifier": request.safety_identifier,
            "service_tier": _tier(self.service_tier, request.service_tier),
            "store": request.is_stored,
            "temperature": facts.chat.temperature,
            "text": {
                "format": _text_format(asked),
                **({"verbosity": text.verbosity} if text and text.verbosity else {}),
            },
            "tool_choice": _on_one_line(request.tool_choice) if is_given(request.tool_choice) else "auto",
            "tools": [_on_one_line(tool) for tool in asked.shown_tools],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": facts.chat.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": request.user,
        }


class WholeResponse(WholeText):
    """One answer that is sent complete."""

    __slots__ = ("output",)

    def __init__(self, facts: ResponseFacts) -> None:
        super().__init__()
        self.output = Output(facts.request_id, _tell_nobody, _spaced(facts.asked))

    def take(self, delta: Delta) -> None:
        """Add a delta. Raises UpstreamBroken on invalid tool calls."""
        self.output.take(delta)
        self.finish_reason = delta.finish_reason or self.finish_reason

    @property
    def spoken(self) -> str | None:
        """Return the text; `None` if functions are called."""
        return self.output.spoken

    def rendered(self, index: int) -> dict[str, object]:
        """Return the output items, the API's field `output`. `index` is unused: a response has one choice."""
        return {"output": self.output.rendered()}


def response_usage(usage: Usage) -> Fields | None:
    """Render usage in the Responses API's format; `None` if input or output is unknown.

    Parts that were not reported are 0, because the API requires integers; the record keeps `None`.
    """
    tokens_in, tokens_out = usage.input_tokens, usage.output_tokens
    if tokens_in is None or tokens_out is None:
        return None
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": usage.output_reasoning or 0},
        "total_tokens": tokens_in + tokens_out,
    }


def _spaced(asked: AskedResponse) -> Mapping[str, OfferedTool]:
    """Return the functions of namespaces, by their names in the chat."""
    return {tool.chat_name: tool for tool in asked.offered if tool.namespace is not None}


def _text_format(asked: AskedResponse) -> Fields:
    text = asked.request.text
    if text is None or text.format is None:
        return {"type": "text"}
    fields: dict[str, Any] = {**msgspec.structs.asdict(text.format), "schema": _on_one_line(text.format.schema)}
    return {name: value for name, value in fields.items() if value is not None and value != NULL}


def _on_one_line(given: msgspec.Raw | UnsetType) -> msgspec.Raw:
    """Return JSON without line breaks, because in a stream they would end an event."""
    assert given is not UNSET, "only what is given is shown"
    return msgspec.Raw(bytes(given).replace(b"\r", b" ").replace(b"\n", b" "))


def cause(why: TollkeeperError) -> Fields:
    return {"code": why.error_code, "message": why.message}


def _error_code(error: TollkeeperError) -> str:
    """Return the API's own code for an error, of which it has few; ours is sent in addition."""
    if error.upstream_code:
        return error.upstream_code
    if isinstance(error, LimitExceeded | UpstreamRateLimited):
        return "rate_limit_exceeded"
    return "invalid_prompt" if isinstance(error, InvalidRequest | UpstreamRejected) else "server_error"


def _tell_nobody(kind: str, fields: Fields) -> None:
    """Report no events: the answer is sent complete."""
