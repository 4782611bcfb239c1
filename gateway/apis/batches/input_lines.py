"""The lines of a batch's input file: read piece by piece, and validated as a whole before the first request runs.

Only errors of the batch are detected here. An error of one request appears when it runs, and is in the error file.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from contracts.objects.batches import MAX_LINES, BatchFault, NewLine

_MAX_CUSTOM_ID: Final = 512
_MAX_FAULTS: Final = 50  # told of one file
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class _Body(msgspec.Struct):
    """The fields required of every body."""

    model: str
    stream: bool | None = None


class _Line(msgspec.Struct):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


_Read = TypeVar("_Read")
_line: Final = msgspec.json.Decoder(_Line)
_body: Final = msgspec.json.Decoder(_Body)


class _Unsound(Exception):
    """An error in a line."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param


class InputReader:
    """Reads a file's pieces in order and yields its lines. `knows_model` reports whether the payer may use a model."""

    def __init__(self, endpoint: str, knows_model: Callable[[str], bool], max_lines: int = MAX_LINES) -> None:
        self._endpoint = endpoint
        self._knows_model = knows_model
        self._max_lines = max_lines
        self._rest = b""  # of a line that a piece ends in
        self._number = 0
        self._ids: set[str] = set()
        self._models: set[str] = set()
        self.total = 0
        self.faults: list[BatchFault] = []

    @property
    def has_failed(self) -> bool:
        """Return whether an error was found, so that further input need not be read."""
        return len(self.faults) >= _MAX_FAULTS or self.total > self._max_lines

    @property
    def model(self) -> str:
        """Return the model that all lines name; empty if they name several."""
        return next(iter(self._models)) if len(self._models) == 1 else ""

    def feed(self, piece: bytes) -> list[NewLine]:
        """Accept the next piece and return the lines that it completes. Takes milliseconds, so call it in a thread."""
        *complete, self._rest = (self._rest + piece).split(b"\n")
        return [line for text in complete if (line := self._take(text)) is not None]

    def end(self) -> list[NewLine]:
        """Return the last line, if it does not end in a newline, and validate the whole file."""
        last, self._rest = self._take(self._rest), b""
        if self.total > self._max_lines:
            self.faults.append(
                BatchFault("too_many_requests", f"the file has more than {self._max_lines} requests; split it")
            )
        elif not self.total:
            self.faults.append(BatchFault("empty_file", "the file has no requests; write one JSON object a line"))
        return [] if last is None else [last]

    def _take(self, text: bytes) -> NewLine | None:
        self._number += 1
        text = text.removeprefix(_BYTE_ORDER_MARK).strip() if self._number == 1 else text.strip()
        if not text or self.has_failed:
            return None
        self.total += 1
        try:
            return self._read(text)
        except _Unsound as unsound:
            self.faults.append(BatchFault(unsound.code, unsound.message, self._number, unsound.param))
            return None

    def _read(self, text: bytes) -> NewLine:
        line = _decoded(_line, text)
        if not 1 <= len(line.custom_id) <= _MAX_CUSTOM_ID or "\x00" in line.custom_id:
            raise _Unsound(
                "invalid_custom_id", f"custom_id must have 1 to {_MAX_CUSTOM_ID} characters, and no NUL", "custom_id"
            )
        if line.custom_id in self._ids:
            raise _Unsound("duplicate_custom_id", "custom_id is that of an earlier line; make each unique", "custom_id")
        self._ids.add(line.custom_id)
        if line.method != "POST":
            raise _Unsound("invalid_method", f"method is {line.method[:20]!r}; it must be 'POST'", "method")
        if line.url != self._endpoint:
            raise _Unsound("invalid_url", f"url is {line.url[:60]!r}; this batch is for {self._endpoint!r}", "url")
        request = bytes(line.body)
        body = _decoded(_body, request, "body")
        if body.stream:
            raise _Unsound("invalid_request", "stream is true; a batch's answers are whole", "body.stream")
        if body.model not in self._models:
            if not self._knows_model(body.model):
                raise _Unsound(
                    "model_not_found",
                    f"the model {body.model[:80]!r} does not exist or is not for this key",
                    "body.model",
                )
            self._models.add(body.model)
        return NewLine(self._number, line.custom_id, request)


def _decoded(decoder: "msgspec.json.Decoder[_Read]", text: bytes, within: str = "") -> _Read:
    """Decode a line or its body. An error does not repeat its content, which may be a prompt."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        message = str(error)
        if "missing required field" in message:
            name = message.split("`")[1]
            param = f"{within}.{name}" if within else name
            raise _Unsound("missing_required_parameter", f"{param} is missing", param) from None
        raise _Unsound("invalid_request", f"the line's {within or 'fields'}: {message}", within or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _Unsound("invalid_json_line", "this line is not valid JSON") from None
