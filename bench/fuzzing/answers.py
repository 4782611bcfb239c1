"""Answers read off the wire by a strict reader of its own, and what every one of them must be."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from contracts.errors import TollkeeperError
from gateway.apis.rendering import OPENAI_ERRORS, ErrorShape

_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Za-z ]+")
_HEADER: Final = re.compile(rb"([!-9;-~]+): ([\x20-\x7e]*)")
_CHUNK: Final = re.compile(rb"([0-9a-f]+)\r\n")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# What an error may be called, in OpenAI's words and in Anthropic's.
_TYPES: Final = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "rate_limit_error",
    "insufficient_quota",
    "server_error",
    "api_error",
    "not_found_error",
    "request_too_large",
    "overloaded_error",
    "timeout_error",
    "billing_error",
}


class Fault(AssertionError):
    """Something that must hold does not. The message says what."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def request_id(self) -> str:
        """Return the id on its record; empty for what no record is written of."""
        return self.headers.get("x-request-id", "")

    @property
    def is_stream(self) -> bool:
        """Return whether it is a stream of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def json(self) -> Any:
        """Read its body as JSON. Raises Fault if it is none."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Fault(f"the answer's body is not JSON: {self.body[:300]!r}") from error

    def events(self) -> list[bytes]:
        """Return the data of its events. Raises Fault if it does not end with a whole one."""
        text = self.body.removeprefix(_BYTE_ORDER_MARK).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if text and not text.endswith(b"\n\n"):
            raise Fault(f"the stream ends within an event: {text[-200:]!r}")
        return [_data(one) for one in text.split(b"\n\n") if one]


def read_answers(data: bytes, *, is_closed: bool) -> list[Answer]:
    """Read all answers of a connection. Raises Fault on what a strict client would not take, and on half an answer."""
    return list(_answers(data, is_closed=is_closed))


def _answers(data: bytes, *, is_closed: bool) -> Iterator[Answer]:
    while data:
        head, blank, data = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        found = _STATUS.fullmatch(first)
        if found is None or not blank:
            raise Fault(f"no HTTP/1.1 answer begins so: {head[:200]!r}")
        status = int(found.group(1))
        if status == 100:
            continue
        headers: dict[str, str] = {}
        for line in lines:
            field = _HEADER.fullmatch(line)
            if field is None or field.group(1).decode() in headers:
                raise Fault(f"a header is malformed or repeated: {line!r}")
            headers[field.group(1).decode()] = field.group(2).decode()
        if headers.get("transfer-encoding") == "chunked":
            body, data = _dechunked(data)
        elif "content-length" in headers:
            length = int(headers["content-length"])
            if len(data) < length:
                raise Fault(f"{len(data)} bytes of a body of {length} came")
            body, data = data[:length], data[length:]
        elif is_closed:
            body, data = data, b""
        else:
            raise Fault("an answer without a length is not ended by closing")
        yield Answer(status, headers, body)


def _dechunked(data: bytes) -> tuple[bytes, bytes]:
    pieces: list[bytes] = []
    while (found := _CHUNK.match(data)) is not None:
        size, begin = int(found.group(1), 16), found.end()
        if data[begin + size : begin + size + 2] != b"\r\n":
            break
        pieces.append(data[begin : begin + size])
        data = data[begin + size + 2 :]
        if size == 0:
            return b"".join(pieces), data
    raise Fault(f"a chunked answer is broken or not ended: {data[:200]!r}")


def check_error(body: bytes, shape: ErrorShape = OPENAI_ERRORS, *, ends_stream: bool = False) -> dict[str, Any]:
    """Hold an error to its API's shape and words; return its inner object. Raises Fault.

    One that ends a stream which had begun may say beside it how many tokens the answer had reached.
    """
    try:
        found = json.loads(body)
    except ValueError as error:
        raise Fault(f"an error's body is not JSON: {body[:300]!r}") from error
    pattern = json.loads(shape.body(TollkeeperError("x")))
    if ends_stream and isinstance(found, dict) and shape is OPENAI_ERRORS:
        reached = found.pop("reached_tokens", 0)
        if type(reached) is not int or reached < 0:
            raise Fault(f"an error does not say how far the answer got: {body[:300]!r}")
    if not isinstance(found, dict) or not pattern.keys() - {"request_id"} <= found.keys() <= pattern.keys():
        raise Fault(f"an error is not in its API's shape: {body[:300]!r}")
    inner = found["error"]
    if inner.keys() != pattern["error"].keys() or inner["type"] not in _TYPES or not inner["message"]:
        raise Fault(f"an error is not documented: {body[:300]!r}")
    return dict(inner)


def check_answer(
    answer: Answer, shapes: Iterable[ErrorShape] = (OPENAI_ERRORS,), *, is_passed_on: bool = False
) -> None:
    """Hold any answer to being a whole good one, or a documented error in one of the shapes. Raises Fault.

    `is_passed_on`: a model server's bytes may be in it, of which the gateway reads what accounting needs.
    """
    if answer.status >= 400:
        _check_one_of(answer.body, shapes)
    elif answer.status != 200:
        raise Fault(f"the status {answer.status} is not documented")
    elif answer.is_stream:
        for data in answer.events():
            if data != b"[DONE]" and not is_passed_on and not _json_event(data):
                raise Fault(f"an event is no JSON object: {data[:300]!r}")
    elif not is_passed_on and answer.headers.get("content-type", "").startswith("application/json"):
        answer.json()


def error_of(answer: Answer, shape: ErrorShape = OPENAI_ERRORS) -> dict[str, Any] | None:
    """Return the error that an answer is or ends with; `None` for a good one. Raises Fault on one out of shape."""
    if not answer.is_stream:
        return check_error(answer.body, shape) if answer.status != 200 else None
    events = answer.events()
    last = _json_event(events[-1]) if events and events[-1] != b"[DONE]" else {}
    failed = last.get("response") if last.get("type") == "response.failed" else None
    if isinstance(failed, dict):
        if not (failed.get("error") or {}).keys() >= {"code", "message"}:
            raise Fault(f"a response that failed does not say why: {events[-1][:500]!r}")
        return dict(failed["error"])
    # A chat's has no type of its own; where one has, it is "error".
    is_error = last.get("type", "error") == "error" and "error" in last
    return check_error(events[-1], shape, ends_stream=True) if is_error else None


def spoken_in(answer: Answer) -> str:
    """Return the text of an answer, in whichever API's words: OpenAI's three, or Anthropic's."""
    if not answer.is_stream:
        return "".join(_texts(answer.json()))
    return "".join("".join(_pieces(_json_event(data))) for data in answer.events() if data != b"[DONE]")


def ends_well(answer: Answer) -> bool:
    """Return whether an answer is complete, by the end that its API gives to a stream."""
    if not answer.is_stream:
        return answer.status == 200
    last = (answer.events() or [b"{}"])[-1]
    return last == b"[DONE]" or _json_event(last).get("type") in ("message_stop", "response.completed")


def _texts(whole: dict[str, Any]) -> Iterator[str]:
    for choice in whole.get("choices", ()):
        yield choice.get("text") or choice.get("message", {}).get("content") or ""
    for block in whole.get("content", ()):
        yield block.get("text", "")
    for item in whole.get("output", ()):
        yield from (part.get("text", "") for part in item.get("content", ()))


def _pieces(event: dict[str, Any]) -> Iterator[str]:
    for choice in event.get("choices") or ():
        yield choice.get("text") or (choice.get("delta") or {}).get("content") or ""
    if event.get("type") == "content_block_delta":
        yield event["delta"].get("text", "")
    elif event.get("type") == "response.output_text.delta":
        yield event["delta"]


def _check_one_of(body: bytes, shapes: Iterable[ErrorShape]) -> None:
    fault: Fault | None = None
    for shape in shapes:
        try:
            check_error(body, shape)
            return
        except Fault as error:
            fault = error
    raise fault or Fault("there is no shape")


def _json_event(data: bytes) -> dict[str, Any]:
    """Read an event; one that is not an object says nothing."""
    try:
        found = json.loads(data.decode(errors="replace"), strict=False)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _data(one: bytes) -> bytes:
    return b"\n".join(line[5:].removeprefix(b" ") for line in one.split(b"\n") if line.startswith(b"data:"))
