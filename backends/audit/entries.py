"""The format of a line in an audit chain: a hash, and canonical JSON with the previous line's hash.

A line is `HASH {"prev":"HASH","seq":N,"kind":"KIND",...}`: the hash is SHA-256 of everything after the space, in 64
lower-case hexadecimal digits. The bytes are the canonical form: a line is hashed, stored, copied and exported as it was
first written, and never encoded again.
"""

import hashlib
from typing import Final

import msgspec

HASH_DIGITS: Final = 64
KIND_REQUEST: Final = "request"
KIND_CONTROL: Final = "control"
KIND_OPENED: Final = "opened"
KIND_CHECKPOINT: Final = "checkpoint"
KIND_GAP: Final = "gap"
KIND_ACCEPTED: Final = "accepted"

_encode: Final = msgspec.json.Encoder().encode
_sha256: Final = hashlib.sha256
_PREV_AT: Final = HASH_DIGITS + len(' {"prev":"')
SEQ_AT: Final = _PREV_AT + HASH_DIGITS + len('","seq":')


class RequestFacts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One request. Hashes are keyed (`KeyedHash`); `None` if there was nothing to hash, or only a part of it."""

    at_ns: int  # Unix time of arrival
    request: str  # its id
    tenant: str
    status: int
    outcome: str
    team: str = ""
    project: str = ""
    key: str = ""
    user_hash: str = ""  # the end user's id in the request
    address: str = ""
    api: str = ""
    asked_for: str = ""  # model name in the request
    model: str = ""  # model that answered
    version: str = ""  # its version, as stated by the target
    provider: str = ""
    error: str = ""
    prompt_hash: str | None = None
    response_hash: str | None = None
    is_whole: bool = True  # False: the answer was interrupted, and its hash covers the part that was sent


class ControlFacts(msgspec.Struct, frozen=True, gc=False):
    """Confirms one audit entry of the control database: the entry's number and hash."""

    at_ns: int
    entry: int
    entry_hash: str


class TornEnd(msgspec.Struct, frozen=True, gc=False):
    """An incomplete entry at the end of a segment, where it stays."""

    segment: str
    size: int  # bytes
    sha256: str

    @classmethod
    def of(cls, segment: str, torn: bytes) -> "TornEnd":
        """Return the description of an incomplete entry."""
        return cls(segment, len(torn), _sha256(torn).hexdigest())


class OpenedFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process has started to write the chain, or a new segment of it. Records the faults that it found, and left
    unchanged.
    """

    at_ns: int
    chain: str
    writer: str
    torn: tuple[TornEnd, ...] = ()
    lost_entries: int = 0  # missing, though the last checkpoint covered them


class GapFacts(msgspec.Struct, frozen=True, gc=False):
    """Requests were served whose entries could not be written, because the disk failed."""

    at_ns: int
    missed: int


class EndHere(msgspec.Struct, frozen=True, gc=False):
    """A chain whose local copy ends with entry `last`, though a sink has later ones; 0: no local copy."""

    chain: str
    last: int


class AcceptedFacts(msgspec.Struct, frozen=True, gc=False):
    """A person confirms that a backup was restored: entries confirmed after the backup are no longer reported as
    missing.
    """

    at_ns: int
    actor: str
    reason: str
    entry: int  # the control database's last entry that equals its confirmation; 0: none
    entry_hash: str
    voided: int  # later entries that had been confirmed
    chains: tuple[EndHere, ...] = ()


class CheckpointFacts(msgspec.Struct, frozen=True, gc=False):
    """A signature over all earlier entries, through the hash `prev`."""

    at_ns: int
    chain: str
    key: str  # id of the signing key
    signature: str  # Ed25519, hexadecimal


class EntryHead(msgspec.Struct, frozen=True, gc=False):
    """The fields that every line of a chain has."""

    prev: str
    seq: int
    kind: str


class CheckpointLine(CheckpointFacts, frozen=True, gc=False, kw_only=True):
    """A line of a chain with a checkpoint, parsed."""

    prev: str
    seq: int
    kind: str


class OpenedLine(OpenedFacts, frozen=True, omit_defaults=True, kw_only=True):
    """A line of a chain at which a process started writing, parsed."""

    prev: str
    seq: int
    kind: str


class AcceptedLine(AcceptedFacts, frozen=True, gc=False, kw_only=True):
    """A line of a chain in which a person accepts a restored backup, parsed."""

    prev: str
    seq: int
    kind: str


class ControlLine(ControlFacts, frozen=True, gc=False, kw_only=True):
    """A line of a chain that confirms one audit entry of the control database, parsed."""

    prev: str
    seq: int
    kind: str


Facts = RequestFacts | ControlFacts | OpenedFacts | GapFacts | AcceptedFacts | CheckpointFacts


def beginning_of(chain: str) -> str:
    """Return the previous hash in a chain's first entry: derived from its name, so that no two chains share
    an entry.
    """
    return _sha256(b"tollkeeper audit chain\n" + chain.encode()).hexdigest()


def line_of(prev: str, seq: int, kind: str, facts: Facts) -> tuple[str, bytes]:
    """Return an entry's hash and its line, with the line end."""
    body = b'{"prev":"%b","seq":%d,"kind":"%b",%b\n' % (prev.encode(), seq, kind.encode(), _encode(facts)[1:])
    digest = _sha256(body[:-1]).hexdigest()
    return digest, digest.encode() + b" " + body


def is_chained(line: bytes, prev: bytes, seq: int) -> bool:
    """Return whether a line, with its line end, is valid and follows `prev`."""
    body = line[HASH_DIGITS + 1 : -1]
    return (
        line[:HASH_DIGITS] == _sha256(body).hexdigest().encode()
        and line.startswith(b' {"prev":"%b","seq":%d,"kind":"' % (prev, seq), HASH_DIGITS)
        and line[-1:] == b"\n"
    )


def kind_of(line: bytes, seq: int) -> bytes:
    """Return the kind of a line that `is_chained`."""
    start = SEQ_AT + len(str(seq)) + len(',"kind":"')
    return line[start : line.index(b'"', start)]


def body_of(line: bytes) -> bytes:
    """Return a line's JSON."""
    return line[HASH_DIGITS + 1 :].rstrip(b"\n")


def signed_text(chain: str, seq: int, prev: str, at_ns: int) -> bytes:
    """Return the text that a checkpoint's signature covers."""
    return f"tollkeeper audit checkpoint 1\n{chain}\n{seq}\n{prev}\n{at_ns}\n".encode()
