"""Verifies a chain from its start and finds the first entry that was changed.

It detects edits, deletions, insertions, duplicates and reorderings of entries and segments, and entries that are
missing up to the last checkpoint. Without a sink it does not detect that entries after the last checkpoint are missing,
nor that the end was removed together with the head file.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

import msgspec

from backends.audit.chain_end import StubLine
from backends.audit.entries import (
    HASH_DIGITS,
    KIND_ACCEPTED,
    KIND_CHECKPOINT,
    KIND_CONTROL,
    KIND_OPENED,
    SEQ_AT,
    AcceptedLine,
    CheckpointLine,
    ControlLine,
    EntryHead,
    OpenedLine,
    TornEnd,
    beginning_of,
    body_of,
    is_chained,
    kind_of,
    signed_text,
)
from backends.audit.entry_hashes import EntryHashes
from backends.audit.places import HEAD, STUB, ChainPlace, first_seq_of
from backends.audit.signing import AuditKeys

_CHECKPOINT: Final = KIND_CHECKPOINT.encode()
_OPENED: Final = KIND_OPENED.encode()
_CONTROL: Final = KIND_CONTROL.encode()
_ACCEPTED: Final = KIND_ACCEPTED.encode()


@dataclass(frozen=True, slots=True)
class Fault:
    """The first fault: `entry` is the number of the first wrong entry, if it concerns one."""

    place: str
    what: str
    segment: str = ""
    entry: int | None = None


@dataclass(slots=True)
class ChainReport:
    """The result for one chain. `notes` are losses and incomplete entries that the writers themselves have recorded."""

    place: str
    chain: str = ""
    entries: int = 0
    checkpoints: int = 0
    first: int = 0
    last: int = 0
    last_hash: str = ""
    signed_upto: int = 0
    fault: Fault | None = None
    notes: list[str] = field(default_factory=list)
    witnessed: EntryHashes = field(default_factory=EntryHashes)  # hashes of the control database's entries
    witnessed_at_ns: int = 0  # time of the last confirmation
    accepted: list[AcceptedLine] = field(default_factory=list)  # restored backups, in order


class ChainBroken(Exception):
    """Ends a verification with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


def verify_chain(place: ChainPlace, keys: AuditKeys, *, is_part: bool = False) -> ChainReport:
    """Verify a chain up to its end or its first invalid entry. Takes some microseconds per entry.

    `is_part`: verify a sink's part of it, which may start at any entry, ends with a finished segment and has no head.
    """
    return _Walk(place, keys, is_part=is_part).report()


class _Walk:
    def __init__(self, place: ChainPlace, keys: AuditKeys, *, is_part: bool) -> None:
        self._is_part = is_part
        self._place = place
        self._keys = keys
        self._report = ChainReport(place.name)
        self._seq = 0
        self._prev = b""
        self._chain = ""
        self._cut_hash = b""  # of the last removed entry
        self._torn: list[TornEnd] = []  # incomplete entries that no opening has recorded yet
        self._signed: dict[int, bytes] = {}  # checkpoints' lines by entry number

    def report(self) -> ChainReport:
        found = self._report
        try:
            head = self._place.read(HEAD)  # first: the chain may grow while it is read, and the head with it
            self._begin()
            for segment in self._segments:
                self._walk(segment)
            self._end(head)
        except ChainBroken as broken:
            found.fault = broken.fault
        found.chain, found.last, found.last_hash = self._chain, self._seq, self._prev.decode()
        found.checkpoints, found.signed_upto = len(self._signed), max(self._signed, default=0)
        return found

    def _begin(self) -> None:
        segments = self._place.segments()
        stub = self._stub()
        self._segments = _behind_cut(segments, stub)
        if stub is not None:
            self._chain, self._seq, self._prev = stub.chain, stub.first_seq - 1, stub.prev.encode()
            self._cut_hash = self._prev
            self._report.notes.append(f"{stub.segments} segments before entry {stub.first_seq} were cut, as signed")
        elif self._is_part and self._segments:
            self._seq = first_seq_of(self._segments[0]) - 1
        self._report.first = self._seq + 1

    def _stub(self) -> StubLine | None:
        try:
            stub = _read_stub(self._place)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._broken("the stub of what was cut cannot be read") from None
        if stub is None:
            return None
        if not self._keys.is_signed(stub.key, stub_text(stub), stub.signature):
            raise self._broken("the stub of what was cut has no valid signature")
        return stub

    def _walk(self, segment: str) -> None:
        if first_seq_of(segment) != self._seq + 1:
            lost = _opening(next(self._place.lines(segment), b""))
            what = f"the segment begins with entry {first_seq_of(segment)}; entry {self._seq + 1} should follow"
            if lost is not None and lost.lost_entries:
                what = f"{lost.lost_entries} entries were gone when a process opened the chain"
            raise self._broken(what, segment, self._seq + 1)
        seq, prev, count = self._seq, self._prev, 0
        for line in self._place.lines(segment):
            if not prev or not is_chained(line, prev, seq + 1):
                self._seq, self._prev = seq, prev
                if count == 0 and self._take_first(line, segment):
                    seq, prev, count = self._seq, self._prev, 1
                    continue
                if line.endswith(b"\n"):
                    raise self._broken(self._reason(line, prev, seq + 1), segment, seq + 1)
                self._torn.append(TornEnd.of(segment, line))
                break
            seq += 1
            prev = line[:HASH_DIGITS]
            count += 1
            try:
                kind = kind_of(line, seq)
                if (count == 1 and self._torn) or kind == _OPENED:
                    self._see_opening(line, kind, segment, seq)
                if kind == _CHECKPOINT:
                    self._see_checkpoint(line, segment, seq)
                elif kind == _CONTROL:
                    witness = msgspec.json.decode(body_of(line), type=ControlLine)
                    self._report.witnessed[witness.entry] = witness.entry_hash
                    self._report.witnessed_at_ns = witness.at_ns
                elif kind == _ACCEPTED:
                    self._see_acceptance(msgspec.json.decode(body_of(line), type=AcceptedLine))
            except (msgspec.MsgspecError, ValueError):
                # Its hash is right: the line is well-formed, but not an entry.
                raise self._broken(
                    "the entry cannot be read: something else than Tollkeeper wrote it", segment, seq
                ) from None
        self._seq, self._prev = seq, prev
        self._report.entries += count

    def _take_first(self, line: bytes, segment: str) -> bool:
        """Start at a chain's first entry, or a part's, and return True; False if the line is not a valid
        first entry.
        """
        if self._prev or self._chain:
            return False
        opening = _opening(line)
        if opening is not None and is_chained(line, beginning_of(opening.chain).encode(), 1):
            self._chain, self._seq, self._prev = opening.chain, 1, line[:HASH_DIGITS]
            self._see_opening(line, _OPENED, segment, 1)
            return True
        if not self._is_part:
            return False
        head = _head(line)
        if head is None or not is_chained(line, head.prev.encode(), head.seq):
            return False
        self._seq, self._prev = head.seq, line[:HASH_DIGITS]
        return True

    def _see_opening(self, line: bytes, kind: bytes, segment: str, seq: int) -> None:
        opening = _opening(line) if kind == _OPENED else None
        if kind == _OPENED and opening is None:
            raise ValueError("an opening without what it says")
        named = [] if opening is None else list(opening.torn)
        if named != self._torn:
            if self._torn:
                raise self._broken(
                    "an entry is torn, and no process has put that on record", self._torn[0].segment, seq
                )
            raise self._broken(f"entry {seq} names a torn end that is not there", segment, seq)
        self._report.notes += [f"an entry was torn in {torn.segment}, as entry {seq} says" for torn in named]
        self._torn = []
        if opening is not None and self._chain and opening.chain != self._chain:
            raise self._broken(f"the entry is of chain {opening.chain!r}", segment, seq)

    def _see_acceptance(self, accepted: AcceptedLine) -> None:
        witnessed = self._report.witnessed
        witnessed.cut(accepted.entry)
        if accepted.entry:
            witnessed[accepted.entry] = accepted.entry_hash
        self._report.accepted.append(accepted)
        chains = ", ".join(f"{end.chain} ends with entry {end.last}" for end in accepted.chains)
        self._report.notes.append(
            f"entry {accepted.seq}: {accepted.actor} accepted that a backup was put back, {accepted.voided} entries of "
            f"the control database behind {accepted.entry} were confirmed{chains and ', '}{chains}: {accepted.reason}"
        )

    def _see_checkpoint(self, line: bytes, segment: str, seq: int) -> None:
        checkpoint = _checkpoint(line)
        if checkpoint is not None and self._is_part and not self._chain:
            self._chain = checkpoint.chain
        if checkpoint is None or not _is_signed(checkpoint, self._chain, self._keys):
            raise self._broken("the checkpoint has no valid signature of a trusted key", segment, seq)
        self._signed[seq] = line

    def _end(self, head: bytes | None) -> None:
        is_written = self._place.is_written()
        if self._is_part:
            self._report.notes += [f"an entry is torn in {torn.segment}, its last here" for torn in self._torn]
            return  # the opening that records them is in a later segment
        if self._torn and not is_written:
            raise self._broken("the last entry is torn", self._torn[0].segment, self._seq + 1)
        if head is None:
            if self._signed:
                raise self._broken("the head, a copy of the last checkpoint, is gone")
            if self._seq and not is_written:
                self._report.notes.append("no checkpoint was written yet: nothing says where it ended")
            return
        checkpoint = _checkpoint(head)
        is_sound = checkpoint is not None and is_chained(head, checkpoint.prev.encode(), checkpoint.seq)
        if checkpoint is None or not is_sound or not _is_signed(checkpoint, checkpoint.chain, self._keys):
            raise self._broken("the head, a copy of the last checkpoint, was changed")
        if checkpoint.seq > self._seq:
            raise self._broken(f"the end was cut: the last checkpoint is entry {checkpoint.seq}", entry=self._seq + 1)
        if checkpoint.seq == self._report.first - 1 and head[:HASH_DIGITS] == self._cut_hash:
            return  # the head is the last removed entry, as signed
        behind = sum(1 for signed in self._signed if signed > checkpoint.seq)
        # One checkpoint may be later than the head if a process ended between the two writes; several if the chain
        # grew during verification.
        if self._signed.get(checkpoint.seq) != head or (behind > 1 and not is_written):
            raise self._broken("the head is not the last checkpoint of this chain", entry=checkpoint.seq)

    def _reason(self, line: bytes, prev: bytes, seq: int) -> str:
        body = line[HASH_DIGITS + 1 : -1]
        if line[:HASH_DIGITS] != hashlib.sha256(body).hexdigest().encode():
            return "the entry was changed: its hash is another one"
        found = line[SEQ_AT : SEQ_AT + 20].partition(b",")[0].decode("ascii", "replace")
        if found != str(seq):
            return f"entry {seq} is missing or out of its place: here stands entry {found}"
        return "the entry carries another hash than that of the one before"

    def _broken(self, what: str, segment: str = "", entry: int | None = None) -> ChainBroken:
        return ChainBroken(Fault(self._place.name, what, segment, entry))


def kept_segments(place: ChainPlace) -> list[str]:
    """Return the names of the segments that belong to a chain, in their order."""
    segments = place.segments()
    try:
        return _behind_cut(segments, _read_stub(place))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return segments  # verification reports the stub


def _behind_cut(segments: list[str], stub: StubLine | None) -> list[str]:
    # Segments before the stub remain if a process ended before it had removed them, or were put there.
    return segments if stub is None else [name for name in segments if first_seq_of(name) >= stub.first_seq]


def _read_stub(place: ChainPlace) -> StubLine | None:
    found = place.read(STUB)
    return None if found is None else msgspec.json.decode(found, type=StubLine)


def stub_text(stub: StubLine) -> bytes:
    """Return the text that a stub's signature covers."""
    facts = (stub.chain, stub.at_ns, stub.first_seq, stub.prev, stub.segments)
    return ("tollkeeper audit stub 1\n" + "\n".join(map(str, facts)) + "\n").encode()


def _opening(line: bytes) -> OpenedLine | None:
    try:
        found = msgspec.json.decode(body_of(line), type=OpenedLine)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.kind == KIND_OPENED else None


def _head(line: bytes) -> EntryHead | None:
    try:
        return msgspec.json.decode(body_of(line), type=EntryHead)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _checkpoint(line: bytes) -> CheckpointLine | None:
    try:
        found = msgspec.json.decode(body_of(line), type=CheckpointLine)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.kind == KIND_CHECKPOINT else None


def _is_signed(checkpoint: CheckpointLine, chain: str, keys: AuditKeys) -> bool:
    text = signed_text(checkpoint.chain, checkpoint.seq, checkpoint.prev, checkpoint.at_ns)
    return checkpoint.chain == chain and keys.is_signed(checkpoint.key, text, checkpoint.signature)
