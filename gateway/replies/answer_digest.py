"""The keyed hash of an answer, computed while it is sent; the text itself is not kept."""

from typing import TYPE_CHECKING

from backends.audit.keyed_hash import KeyedHash

if TYPE_CHECKING:
    import hmac


class AnswerDigest:
    """Hashes a stream event by event, or a complete answer in one call."""

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
