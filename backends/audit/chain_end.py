"""Finds the end of a chain without changing it: the last complete entry, and incomplete ones after it."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from backends.audit.entries import (
    HASH_DIGITS,
    CheckpointLine,
    EntryHead,
    OpenedLine,
    TornEnd,
    beginning_of,
    body_of,
    is_chained,
)
from backends.audit.places import HEAD, STUB, DirectoryPlace, first_seq_of
from backends.audit.signing import KEY_FILE, own_keys
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError
from contracts.recording.ids import uuid7


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """Number and hash of the last complete entry, incomplete entries after it, and how many before it are missing."""

    chain: str
    seq: int
    prev: str
    torn: tuple[TornEnd, ...] = ()
    lost_entries: int = 0


class StubLine(msgspec.Struct, frozen=True, gc=False):
    """Signed replacement of removed segments: where the chain continues."""

    chain: str
    at_ns: int
    first_seq: int  # the first remaining entry
    prev: str  # the previous hash in that entry
    segments: int  # removed so far
    key: str
    signature: str


def find_end(directory: Path, writer: str, now_ns: int) -> ChainEnd:
    """Return the end of a directory's chain; for an empty one, the start of a new chain.

    Raises ConfigurationError if the last segment cannot be parsed: an operator must examine it.
    """
    place = DirectoryPlace(directory)
    segments = place.segments()
    head = _head_of(place)
    last = _last_of(place, segments)
    if last is None and head is None:
        stub = stub_of(place)
        if stub is not None:
            return ChainEnd(stub.chain, stub.first_seq - 1, stub.prev)
        chain = f"{writer}/{uuid7(now_ns).hex[-8:]}"
        return ChainEnd(chain, 0, beginning_of(chain), _torn_of(place, segments))
    torn = _torn_of(place, segments)
    if last is None or (head is not None and head[0].seq > last[0]):
        assert head is not None  # without a head there is a last entry
        lost = head[0].seq - (0 if last is None else last[0])
        return ChainEnd(head[0].chain, head[0].seq, head[1], torn, lost)
    return ChainEnd(_chain_of(place, segments, head), last[0], last[1], torn)


def require_key(directory: Path, secrets: SecretFiles) -> None:
    """Raise ConfigurationError if an existing chain was signed with a key that is missing here.

    With another key, the chain would no longer verify.
    """
    place = DirectoryPlace(directory)
    if not place.segments() and place.read(HEAD) is None:
        return
    keys, head = own_keys(secrets), _head_of(place)
    if head is not None and not keys.has(head[0].key):
        raise ConfigurationError(
            f"{secrets.directory / KEY_FILE} is another key than the one that signed {directory}; put back the file "
            "that it was, or move the directory away to begin a new chain"
        )


def stub_of(place: DirectoryPlace) -> StubLine | None:
    """Return a directory's stub; `None` if no segment was removed. Raises ConfigurationError if it cannot be read."""
    found = place.read(STUB)
    try:
        return None if found is None else msgspec.json.decode(found, type=StubLine)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{place.directory / STUB} cannot be read; `tollkeeper audit verify` says more"
        ) from error


def _head_of(place: DirectoryPlace) -> tuple[CheckpointLine, str] | None:
    found = place.read(HEAD)
    if found is None:
        return None
    try:
        return msgspec.json.decode(body_of(found), type=CheckpointLine), found[:HASH_DIGITS].decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # verification reports it; the chain continues from its last entry


def _last_of(place: DirectoryPlace, segments: list[str]) -> tuple[int, str] | None:
    """Return the number and the hash of the last complete entry."""
    for segment in reversed(segments):
        found: bytes = b""
        for line in place.lines(segment):
            if line.endswith(b"\n"):
                found = line
        if found:
            try:
                entry = msgspec.json.decode(body_of(found), type=EntryHead)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ConfigurationError(
                    f"the last entry of {place.directory / segment} cannot be read; see "
                    "`tollkeeper audit verify`; move the directory away to begin a new chain"
                ) from error
            if not is_chained(found, entry.prev.encode(), entry.seq):
                raise ConfigurationError(
                    f"the last entry of {place.directory / segment} was changed; see "
                    "`tollkeeper audit verify`; move the directory away to begin a new chain"
                )
            return entry.seq, found[:HASH_DIGITS].decode()
    return None


def _torn_of(place: DirectoryPlace, segments: list[str]) -> tuple[TornEnd, ...]:
    """Return the incomplete entries after the last complete one, in the last segments."""
    found: list[TornEnd] = []
    for segment in reversed(segments):
        has_entry, last = False, b""
        for last in place.lines(segment):
            has_entry = has_entry or last.endswith(b"\n")
        if last and not last.endswith(b"\n"):
            found.insert(0, TornEnd.of(segment, last))
        if has_entry:
            break
    return tuple(found)


def _chain_of(place: DirectoryPlace, segments: list[str], head: tuple[CheckpointLine, str] | None) -> str:
    if head is not None:
        return head[0].chain
    stub = stub_of(place)
    if stub is not None:
        return stub.chain
    first = next(place.lines(segments[0]), b"")
    try:
        return msgspec.json.decode(body_of(first), type=OpenedLine).chain
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{place.directory} has no checkpoint, and its first segment does not say whose chain it is; "
            f"move it away to begin a new one (it began at entry {first_seq_of(segments[0])})"
        ) from error
