"""Copies chains into a backup while they are written, and restores them beside the chains written since."""

import os
import shutil
from pathlib import Path
from typing import Final

import msgspec

from backends.audit.entries import KIND_CHECKPOINT, EntryHead, body_of
from backends.audit.places import HEAD, STUB, DirectoryPlace, chain_directories, write_whole

_CHECKPOINT: Final = f'"kind":"{KIND_CHECKPOINT}"'.encode()


def copy_chains(root: Path, to: Path) -> list[str]:
    """Copy every chain so that the copy verifies if the original does; return their names. Raises OSError.

    Call it before the control database is copied: then no chain confirms entries that the database's copy lacks.
    """
    names = []
    for directory in chain_directories(root):
        copy = to / directory.name
        copy.mkdir(parents=True, mode=0o700)
        _copy_chain(DirectoryPlace(directory), copy)
        names.append(directory.name)
    return names


def restore_chains(backup: Path, root: Path, when: str) -> list[str]:
    """Restore a backup's chains beside the current ones, as NAME.restored-WHEN; return their new names.

    Restored chains are never continued: a sink may have later entries of them, and a chain must not continue in two
    ways. Raises OSError.
    """
    names = []
    for directory in chain_directories(backup):
        name = f"{directory.name.partition('.restored-')[0]}.restored-{when}"
        while (root / name).exists():
            name += "-1"
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copytree(directory, root / name)
        names.append(name)
    return names


def _copy_chain(place: DirectoryPlace, copy: Path) -> None:
    is_written, head = place.is_written(), place.read(HEAD)
    last, end = "", b""
    for segment in place.segments():
        try:
            content = (place.directory / segment).read_bytes()
        except FileNotFoundError:
            continue  # removed meanwhile; the stub, which is read last, records it
        write_whole(copy / segment, content)
        os.chmod(copy / segment, 0o400)
        last, end = segment, content
    if last and is_written and not end.endswith(b"\n"):  # an entry is being written; an old incomplete entry is copied
        write_whole(copy / last, end[: end.rfind(b"\n") + 1])
        os.chmod(copy / last, 0o400)
    stub = place.read(STUB)
    if stub is not None:
        write_whole(copy / STUB, stub)
    if head is not None:
        write_whole(copy / HEAD, _newer_head(head, DirectoryPlace(copy)) if is_written else head)


def _newer_head(head: bytes, copy: DirectoryPlace) -> bytes:
    """Return the last checkpoint of a copy if it is older than the head that was read first, else that head."""
    for segment in reversed(copy.segments()):
        newest = b""
        for line in copy.lines(segment):
            if _CHECKPOINT in line:
                newest = line
        if newest:
            return newest if _seq_of(newest) > _seq_of(head) else head
    return head


def _seq_of(line: bytes) -> int:
    try:
        return msgspec.json.decode(body_of(line), type=EntryHead).seq
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0  # verification of the copy reports it
