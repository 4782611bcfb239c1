"""Reads and decompresses bodies of export requests, with limits on size and on memory in use."""

import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from contracts.errors import BodyTooLarge, InvalidRequest, LimitExceeded, UnsupportedMediaType

_GZIP_WINDOW = 31  # zlib's window size for gzip header and trailer
_RETRY_SECONDS = 1.0
_MAX_GZIP_MEMBERS = 64  # senders use one; each copies the remaining bytes, so thousands would take minutes


class InflightBytes:
    """Limits the total bytes of bodies that are being received. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held = 0
        self.lock = threading.Lock()

    @contextmanager
    def lease(self) -> Iterator["Lease"]:
        """Provide a `Lease` for one request in a `with` block; its bytes are returned at the end."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            with self.lock:
                self.held -= lease.held


class Lease:
    """The bytes that one request holds."""

    def __init__(self, inflight: InflightBytes) -> None:
        self._inflight = inflight
        self.held = 0

    def grow_to(self, size: int) -> None:
        """Hold at least `size` bytes. Raises LimitExceeded (429, code memory_pressure) beyond the total limit."""
        with self._inflight.lock:
            more = max(size - self.held, 0)
            if more and self._inflight.held + more > self._inflight.max_bytes:
                raise LimitExceeded(
                    f"the collector is receiving {self._inflight.held} of at most {self._inflight.max_bytes} bytes at "
                    "one time; send this batch again",
                    code="memory_pressure",
                    retry_after_seconds=_RETRY_SECONDS,
                )
            self._inflight.held += more
            self.held += more


async def read_body(stream: AsyncIterator[bytes], declared: int | None, max_bytes: int, lease: Lease) -> bytes:
    """Read a body of at most `max_bytes`. Raises BodyTooLarge, before reading if the declared length is too large."""
    if declared is not None:
        _check_size(declared, max_bytes)
        lease.grow_to(declared)
    body = bytearray()  # one buffer: a list of small pieces would take many times their length
    async for chunk in stream:
        size = len(body) + len(chunk)
        _check_size(size, max_bytes)
        lease.grow_to(size)
        body += chunk
    return bytes(body)


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise BodyTooLarge(f"the body has {size} bytes or more; the limit is {max_bytes}. Send smaller batches")


def inflate(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Decompress a body with content encoding "" (none), identity or gzip, to at most `max_bytes`.

    Raises UnsupportedMediaType, BodyTooLarge if the result is larger, InvalidRequest for an invalid gzip stream.
    """
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise UnsupportedMediaType(f"content encoding {encoding[:40]!r} is not read here; use gzip or none")
    parts: list[bytes] = []
    size = 0
    while body:  # a gzip stream may have several members
        if len(parts) == _MAX_GZIP_MEMBERS:
            raise InvalidRequest(
                f"the body has more than {_MAX_GZIP_MEMBERS} gzip members; compress it as one", code="malformed_gzip"
            )
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        try:
            parts.append(inflater.decompress(body, max_bytes - size + 1))
        except zlib.error as error:
            raise InvalidRequest("the body is not the gzip stream it claims to be", code="malformed_gzip") from error
        size += len(parts[-1])
        if size > max_bytes:
            raise BodyTooLarge(f"the body inflates to more than {max_bytes} bytes. Send smaller batches")
        if not inflater.eof:
            raise InvalidRequest("the body's gzip stream ends early", code="malformed_gzip")
        body = inflater.unused_data
    return b"".join(parts)
