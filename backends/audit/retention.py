"""Removes the oldest segments of a chain; a signed stub states where the rest continues."""

from pathlib import Path
from typing import Final

import msgspec

from backends.audit.chain_end import StubLine, stub_of
from backends.audit.entries import HASH_DIGITS, KIND_ACCEPTED, KIND_CHECKPOINT, KIND_CONTROL, CheckpointLine, body_of
from backends.audit.places import STUB, DirectoryPlace, first_seq_of, write_whole
from backends.audit.signing import AuditKeys, AuditSigner
from backends.audit.verification import stub_text, verify_chain
from contracts.errors import ConfigurationError

_VOUCHING: Final = tuple(f'"kind":"{kind}"'.encode() for kind in (KIND_CONTROL, KIND_ACCEPTED))


def cut_before(directory: Path, before_ns: int, signer: AuditSigner, now_ns: int) -> list[str]:
    """Remove the finished segments whose last entry is older than a time; return their names.

    A segment without a checkpoint at its end is kept, with all that follow. So are the last segment, and the last one
    with a confirmation of the control database's audit log. Raises ConfigurationError if the chain does not verify:
    removed entries can never be examined again.
    """
    place = DirectoryPlace(directory)
    wanted = _old_segments(place, before_ns)
    if not wanted:
        return []
    report = verify_chain(place, AuditKeys([signer.public]))
    if report.fault is not None:
        raise ConfigurationError(
            f"nothing is cut of {directory}, as the chain does not verify: {report.fault.what}; "
            "`tollkeeper audit verify` says more"
        )
    before = stub_of(place)
    last = _last_line(place, wanted[-1])
    stub = StubLine(
        chain=report.chain,
        at_ns=now_ns,
        first_seq=first_seq_of(place.segments()[place.segments().index(wanted[-1]) + 1]),
        prev=last[:HASH_DIGITS].decode(),
        segments=len(wanted) + (0 if before is None else before.segments),
        key=signer.public.id,
        signature="",
    )
    signed = msgspec.structs.replace(stub, signature=signer.sign(stub_text(stub)))
    write_whole(directory / STUB, msgspec.json.encode(signed) + b"\n")  # first: a retry finds it and continues
    for segment in wanted:
        (directory / segment).unlink()
    return wanted


def _old_segments(place: DirectoryPlace, before_ns: int) -> list[str]:
    found: list[str] = []
    for segment in place.segments()[:-1]:
        last = _last_line(place, segment)
        try:
            end = msgspec.json.decode(body_of(last), type=CheckpointLine)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            break  # no checkpoint at its end: it is only covered by the next segment's
        if end.kind != KIND_CHECKPOINT or end.at_ns >= before_ns:
            break
        found.append(segment)
    return found[: _last_vouching(place, found)]


def _last_vouching(place: DirectoryPlace, old: list[str]) -> int | None:
    """Return the index of the last segment among `old` that confirms the control database; `None` if a later one does,
    or none.
    """
    behind = place.segments()[len(old) :] if old else []
    if any(_vouches(place, segment) for segment in behind):
        return None
    return next((at for at in reversed(range(len(old))) if _vouches(place, old[at])), None)


def _vouches(place: DirectoryPlace, segment: str) -> bool:
    return any(kind in line for line in place.lines(segment) for kind in _VOUCHING)


def _last_line(place: DirectoryPlace, segment: str) -> bytes:
    last = b""
    for line in place.lines(segment):
        last = line
    return last
