"""What is taken of an answer while it is sent to the client: a copy, or its keyed hash alone."""

from typing import TYPE_CHECKING

from backends.audit.keyed_hash import KeyedHash

if TYPE_CHECKING:
    import hmac


class AnswerCopy:
    """The bytes of one answer that the client is sent, up to a maximum size beyond which no copy is kept."""

    __slots__ = ("_max_bytes", "_pieces", "_size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, data: bytes) -> None:
        """Record a piece of a stream."""
        self._size += len(data)
        if self._size <= self._max_bytes:
            self._pieces.append(data)
        elif self._pieces:
            self._pieces = []

    def with_end(self, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the events and the end of a stream as bytes; `None` if together they exceed the maximum size."""
        if self._size + len(end) > self._max_bytes:
            return None
        return b"".join(self._pieces), end


class AnswerDigest:
    """The hash of an answer, of a stream event by event; the text itself is not kept."""

    __slots__ = ("_hash", "_hashes", "_size", "_tenant")

    def __init__(self, hashes: KeyedHash, tenant: str) -> None:
        self._hashes = hashes
        self._tenant = tenant
        self._hash: hmac.HMAC | None = None  # of a stream
        self._size = 0

    def take(self, data: bytes) -> None:
        """Add a piece of a stream."""
        self._size += len(data)
        if self._hash is None:
            self._hash = self._hashes.begin(self._tenant)
        self._hash.update(data)

    def with_end(self, end: bytes) -> str | None:
        """Return the hash of all chunks and the end; `None` if nothing was sent. Must be the last call."""
        if self._hash is None:
            return self._hashes.digest(self._tenant, end) if end else None
        self.take(end)
        return self._hash.hexdigest() if self._size else None
