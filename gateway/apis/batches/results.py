"""The result of a batch line, as JSON in the output file or error file."""

from typing import Final
from uuid import UUID

import msgspec

from contracts.objects.batches import BatchUsage, LineOutcome, NewLine
from gateway.apis.batches.line_exchange import LineAnswer


class _Response(msgspec.Struct, frozen=True):
    status_code: int
    request_id: str
    body: msgspec.Raw


class _Error(msgspec.Struct, frozen=True):
    code: str
    message: str


class _Result(msgspec.Struct, frozen=True):
    id: str
    custom_id: str
    response: _Response | None
    error: _Error | None


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    """Usage in any API's field names; a message's cached input is counted in addition to its input."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Answer(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


_NOTHING: Final = _Details()
_answer: Final = msgspec.json.Decoder(_Answer)
_encoder: Final = msgspec.json.Encoder()


def answered(line: NewLine, answer: LineAnswer, result_id: UUID) -> LineOutcome:
    """Return the outcome of a line that got an answer: a model's, or an error."""
    # A model server may write its JSON on several lines. Within a string a newline is escaped, so these are between.
    body = answer.body.replace(b"\r", b" ").replace(b"\n", b" ")
    try:
        usage = _usage_of(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return unanswered(line, "invalid_answer", "the answer is not valid JSON; its record has its usage", result_id)
    response = _Response(answer.status, answer.request_id, msgspec.Raw(body))
    is_failed = answer.status != 200
    result = _encoder.encode(_Result(_id(result_id), line.custom_id, response, None))
    return LineOutcome(line.number, result, is_failed, BatchUsage() if is_failed else usage)


def unanswered(line: NewLine, code: str, message: str, result_id: UUID) -> LineOutcome:
    """Return the outcome of a line that got no answer."""
    result = _encoder.encode(_Result(_id(result_id), line.custom_id, None, _Error(code, message)))
    return LineOutcome(line.number, result, is_failed=True)


def _id(result_id: UUID) -> str:
    return f"batch_req_{result_id.hex}"


def _usage_of(body: bytes) -> BatchUsage:
    """Return the usage that an answer reports. Raises DecodeError, ... on what is no JSON."""
    try:
        usage = _answer.decode(body).usage
    except msgspec.ValidationError:
        return BatchUsage()  # it reports none that can be read; the record has what was counted
    if usage is None:
        return BatchUsage()
    beside = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    details_in = usage.prompt_tokens_details or usage.input_tokens_details or _NOTHING
    details_out = usage.completion_tokens_details or usage.output_tokens_details or _NOTHING
    return BatchUsage(
        input_tokens=(usage.prompt_tokens or usage.input_tokens or 0) + beside,
        cached_tokens=(details_in.cached_tokens or 0) + (usage.cache_read_input_tokens or 0),
        output_tokens=usage.completion_tokens or usage.output_tokens or 0,
        reasoning_tokens=details_out.reasoning_tokens or 0,
    )
