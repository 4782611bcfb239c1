"""Parses an upload's multipart body into a file's content and fields.

Parsing takes milliseconds per mebibyte: callers do it in a thread.
"""

from dataclasses import dataclass, field
from typing import Final

from contracts.errors import InvalidRequest
from contracts.objects.files import PIECE_BYTES
from gateway.wire.forms import FormReader, read_form

_MAX_FIELD_BYTES: Final = 1024
_MAX_FILENAME: Final = 255
_FILE: Final = "file"
_TEXTS: Final = ("purpose", "expires_after[anchor]", "expires_after[seconds]")
_PURPOSE: Final = "batch"
_MIN_EXPIRY_SECONDS: Final = 3600
_MAX_EXPIRY_SECONDS: Final = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as uploaded. `expires_after_seconds` counts from the time at which it is stored."""

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
    """Validate an expiry: seconds after the creation of a file. Raises InvalidRequest."""
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
class _Parts(FormReader):
    """Collects what the parser reports in its callbacks."""

    texts: dict[str, bytearray] = field(default_factory=dict)
    filename: str | None = None
    pieces: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    _name: str = ""
    _tail: bytearray = field(default_factory=bytearray)

    def begin(self, name: str, filename: str | None) -> None:
        if name not in (_FILE, *_TEXTS):
            raise InvalidRequest(
                f"the form has a field {name[:40]!r}; known are file, purpose and expires_after", param=name[:40]
            )
        if name in self.texts or (name == _FILE and self.filename is not None):
            raise InvalidRequest(f"{name} is given more than once", param=name)
        self._name = name
        if name != _FILE:
            self.texts[name] = bytearray()
        elif filename is None:
            raise InvalidRequest("file is a text without a file name; send it as a file", param="file")
        else:
            self.filename = filename

    def take(self, data: bytes, start: int, end: int, at: int) -> None:
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

    def end(self) -> None:
        if self._tail:
            self.pieces.append(bytes(self._tail))
            self._tail.clear()


def _parts_of(content_type: str, body: bytes) -> _Parts:
    parts = _Parts()
    read_form(content_type, body, parts)
    return parts
