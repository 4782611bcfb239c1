"""An upload's multipart body becomes a file's content and fields (RFC 7578), by python-multipart's parser.

Reading takes milliseconds a mebibyte: callers do it in a thread.
"""

from dataclasses import dataclass, field
from typing import Final

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from contracts.errors import InvalidRequest, MalformedBody, UnsupportedMediaType
from contracts.objects.files import PIECE_BYTES

_MAX_FIELD_BYTES: Final = 1024
_MAX_FILENAME: Final = 255
_MAX_BOUNDARY_BYTES: Final = 70  # RFC 2046, section 5.1.1
_FILE: Final = "file"
_TEXTS: Final = ("purpose", "expires_after[anchor]", "expires_after[seconds]")
_PURPOSE: Final = "batch"
_MIN_EXPIRY_SECONDS: Final = 3600
_MAX_EXPIRY_SECONDS: Final = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as it was sent. `expires_after_seconds`: from when it is kept."""

    filename: str
    pieces: tuple[bytes, ...]
    size_bytes: int
    expires_after_seconds: int


def read_upload(content_type: str, body: bytes) -> Upload:
    """Read the body of POST /v1/files. Raises UnsupportedMediaType, MalformedBody or InvalidRequest."""
    parts = _parts_of(content_type, body)
    if "purpose" not in parts.texts:
        raise InvalidRequest("purpose is required; it is 'batch'", param="purpose")
    purpose = _text(parts.texts, "purpose")
    if purpose != _PURPOSE:
        raise InvalidRequest(
            f"purpose is {purpose[:40]!r}; only 'batch' is supported",
            param="purpose",
        )
    if parts.filename is None:
        raise InvalidRequest("file is required: the content, with a file name", param="file")
    if not 1 <= len(parts.filename) <= _MAX_FILENAME or not parts.filename.isprintable():
        raise InvalidRequest(f"the file's name must be 1 to {_MAX_FILENAME} printable characters", param="file")
    if not parts.size_bytes:
        raise InvalidRequest("the file is empty", param="file")
    return Upload(parts.filename, tuple(parts.pieces), parts.size_bytes, _expiry(parts.texts))


def read_expiry(anchor: str, seconds: int, param: str) -> int:
    """Hold a wish for an expiry to what is kept: seconds after the making of a file. Raises InvalidRequest."""
    if anchor != "created_at":
        raise InvalidRequest(f"{param}.anchor is {anchor[:40]!r}; it is 'created_at'", param=param)
    if not _MIN_EXPIRY_SECONDS <= seconds <= _MAX_EXPIRY_SECONDS:
        raise InvalidRequest(
            f"{param}.seconds is {seconds}; it must be within {_MIN_EXPIRY_SECONDS} to {_MAX_EXPIRY_SECONDS}",
            param=param,
        )
    return seconds


DEFAULT_EXPIRY_SECONDS: Final = _MAX_EXPIRY_SECONDS


def _expiry(texts: dict[str, bytearray]) -> int:
    anchor, seconds = _text(texts, "expires_after[anchor]"), _text(texts, "expires_after[seconds]")
    if not anchor and not seconds:
        return DEFAULT_EXPIRY_SECONDS
    if not (seconds.isascii() and seconds.isdecimal() and len(seconds) < 12):
        raise InvalidRequest(
            "expires_after needs anchor and seconds, a whole number; SDKs send expires_after[anchor] and "
            "expires_after[seconds]",
            param="expires_after",
        )
    return read_expiry(anchor, int(seconds), "expires_after")


def _text(texts: dict[str, bytearray], name: str) -> str:
    try:
        return texts.get(name, bytearray()).decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{name} contains bytes that are not UTF-8", param=name) from None


@dataclass(slots=True)
class _Parts:
    """What the parser calls back with, put together."""

    texts: dict[str, bytearray] = field(default_factory=dict)
    filename: str | None = None
    pieces: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    has_ended: bool = False
    _header_name: bytearray = field(default_factory=bytearray)
    _header_value: bytearray = field(default_factory=bytearray)
    _disposition: bytes = b""
    _name: str = ""
    _tail: bytearray = field(default_factory=bytearray)

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
        if name not in (_FILE, *_TEXTS):
            raise InvalidRequest(
                f"the form has a field {name[:40]!r}; known are file, purpose and expires_after", param=name[:40]
            )
        if name in self.texts or (name == _FILE and self.filename is not None):
            raise InvalidRequest(f"{name} is given more than once", param=name)
        self._name = name
        if name != _FILE:
            self.texts[name] = bytearray()
        elif b"filename" not in options:
            raise InvalidRequest("file is a text without a file name; send it as a file", param="file")
        else:
            self.filename = filename.replace("%22", '"')  # as browsers and SDKs write it (WHATWG, form submission)

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name != _FILE:
            text = self.texts[self._name]
            text += data[start:end]
            if len(text) > _MAX_FIELD_BYTES:
                raise InvalidRequest(f"{self._name} has more than {_MAX_FIELD_BYTES} bytes", param=self._name)
            return
        self.size_bytes += end - start
        self._tail += memoryview(data)[start:end]
        while len(self._tail) >= PIECE_BYTES:
            self.pieces.append(bytes(self._tail[:PIECE_BYTES]))
            del self._tail[:PIECE_BYTES]

    def on_part_end(self) -> None:
        if self._tail:
            self.pieces.append(bytes(self._tail))
            self._tail.clear()

    def on_end(self) -> None:
        self.has_ended = True


def _parts_of(content_type: str, body: bytes) -> _Parts:
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if len(boundary) > _MAX_BOUNDARY_BYTES:
        raise UnsupportedMediaType(f"the boundary has {len(boundary)} bytes; at most {_MAX_BOUNDARY_BYTES} are read")
    if kind != b"multipart/form-data" or not boundary:
        shown = kind.decode("latin-1")[:60] or "none"
        raise UnsupportedMediaType(f"the content type is {shown!r}; send multipart/form-data with a boundary")
    parts = _Parts()
    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": parts.on_part_begin,
            "on_header_field": parts.on_header_field,
            "on_header_value": parts.on_header_value,
            "on_header_end": parts.on_header_end,
            "on_headers_finished": parts.on_headers_finished,
            "on_part_data": parts.on_part_data,
            "on_part_end": parts.on_part_end,
            "on_end": parts.on_end,
        },
    )
    whole = memoryview(body)
    for start in range(0, len(body), PIECE_BYTES):  # in steps, between which other threads have their turn
        try:
            parser.write(bytes(whole[start : start + PIECE_BYTES]))
        except MultipartParseError as error:
            raise MalformedBody(f"the body is not valid multipart/form-data, at byte {start + error.offset}") from None
    if not parts.has_ended:
        raise MalformedBody("the body is not valid multipart/form-data: it ends too early")
    return parts
