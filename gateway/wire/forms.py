"""Multipart forms (RFC 7578), parsed by python-multipart: their parts are passed on as they arrive."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from contracts.errors import InvalidRequest, MalformedBody, UnsupportedMediaType

_MAX_BOUNDARY_BYTES: Final = 70  # RFC 2046, section 5.1.1
_STEP_BYTES: Final = 1 << 18


@dataclass(slots=True)
class FormReader(ABC):
    """Receives a form's parts: `begin`, `take` for each piece of the content, `end`."""

    has_ended: bool = False
    _header_name: bytearray = field(default_factory=bytearray)
    _header_value: bytearray = field(default_factory=bytearray)
    _disposition: bytes = b""
    _at: int = 0  # of what the parser is given: where it begins in the body

    @abstractmethod
    def begin(self, name: str, filename: str | None) -> None:
        """Start a part. `filename` is `None` of a text."""

    @abstractmethod
    def take(self, data: bytes, start: int, end: int, at: int) -> None:
        """Accept a piece of a part, `data[start:end]`; `at` is its position in the body."""

    @abstractmethod
    def end(self) -> None:
        """End a part."""

    # what the parser calls

    def on_part_begin(self) -> None:
        self._disposition = b""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def on_header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def on_headers_finished(self) -> None:
        kind, options = parse_options_header(self._disposition)
        try:
            name, filename = options.get(b"name", b"").decode(), options.get(b"filename", b"").decode()
        except UnicodeDecodeError:
            raise InvalidRequest("a part's name contains bytes that are not UTF-8") from None
        if kind != b"form-data" or not name:
            raise InvalidRequest("a part of the form has no name; each needs Content-Disposition: form-data; name=...")
        # Quotation marks as browsers and SDKs write them (WHATWG, form submission).
        self.begin(name, filename.replace("%22", '"') if b"filename" in options else None)

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.take(data, start, end, self._at + start)

    def on_part_end(self) -> None:
        self.end()

    def on_end(self) -> None:
        self.has_ended = True

    def move_to(self, at: int) -> None:
        """Record the position in the body of the next piece."""
        self._at = at


def read_form(content_type: str, body: bytes, reader: FormReader) -> None:
    """Pass the parts of a form to a reader. Raises UnsupportedMediaType, MalformedBody, and the reader's errors."""
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if len(boundary) > _MAX_BOUNDARY_BYTES:
        raise UnsupportedMediaType(f"the boundary has {len(boundary)} bytes; at most {_MAX_BOUNDARY_BYTES} are read")
    if kind != b"multipart/form-data" or not boundary:
        shown = kind.decode("latin-1")[:60] or "none"
        raise UnsupportedMediaType(f"the content type is {shown!r}; send multipart/form-data with a boundary")
    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": reader.on_part_begin,
            "on_header_field": reader.on_header_field,
            "on_header_value": reader.on_header_value,
            "on_header_end": reader.on_header_end,
            "on_headers_finished": reader.on_headers_finished,
            "on_part_data": reader.on_part_data,
            "on_part_end": reader.on_part_end,
            "on_end": reader.on_end,
        },
    )
    whole = memoryview(body)
    for start in range(0, len(body), _STEP_BYTES):  # in steps, between which other threads have their turn
        reader.move_to(start)
        try:
            parser.write(bytes(whole[start : start + _STEP_BYTES]))
        except MultipartParseError as error:
            raise MalformedBody(f"the body is not valid multipart/form-data, at byte {start + error.offset}") from None
    if not reader.has_ended:
        raise MalformedBody("the body is not valid multipart/form-data: it ends too early")
