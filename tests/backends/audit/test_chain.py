"""A chain as it is written: what each entry carries, where segments end, what a crash leaves, and who may write."""

import errno
import json
import os
from pathlib import Path

import pytest

from backends.audit.chain import AuditChain
from backends.audit.entries import KIND_REQUEST, beginning_of
from backends.audit.places import HEAD, DirectoryPlace, segment_names
from backends.audit.signing import AuditKeys
from backends.audit.verification import ChainReport, verify_chain
from contracts.errors import ConfigurationError
from tests.backends.audit.conftest import Opened, StillClock, fill, request_facts


def lines_of(directory: Path) -> list[bytes]:
    return [line for name in segment_names(directory) for line in (directory / name).read_bytes().splitlines()]


def verified(directory: Path, keys: AuditKeys) -> ChainReport:
    return verify_chain(DirectoryPlace(directory), keys)


def test_each_entry_carries_the_hash_of_the_one_before(opened: Opened) -> None:
    chain = opened()
    fill(chain, 3)
    chain.close()
    found = [(line[:64].decode(), json.loads(line[65:])) for line in lines_of(chain.directory)]
    assert [entry["kind"] for _, entry in found] == ["opened", "request", "request", "request", "checkpoint"]
    assert [entry["seq"] for _, entry in found] == [1, 2, 3, 4, 5]
    assert [entry["prev"] for _, entry in found] == [beginning_of(chain.chain), *(digest for digest, _ in found[:-1])]


def test_two_chains_of_one_writer_have_names_of_their_own(opened: Opened, tmp_path: Path) -> None:
    one, other = opened(tmp_path / "one"), opened(tmp_path / "other")
    assert one.chain != other.chain and one.chain.startswith("test:1/")
    one.close()
    other.close()


def test_a_closed_chain_verifies_to_its_last_entry(opened: Opened, keys: AuditKeys) -> None:
    chain = opened(segment_bytes=2000)
    for _ in range(10):
        fill(chain, 5)
        chain.tend()
    chain.close()
    report = verified(chain.directory, keys)
    assert report.fault is None and len(segment_names(chain.directory)) > 3
    assert (report.last, report.entries, report.signed_upto) == (chain.seq, chain.seq, chain.seq)
    assert report.chain == chain.chain


@pytest.mark.parametrize(("entries", "checkpoints"), [(8, 0), (9, 1), (10, 1)])
def test_a_checkpoint_is_due_after_so_many_entries(opened: Opened, entries: int, checkpoints: int) -> None:
    chain = opened(checkpoint_entries=10)  # the opening is the first
    fill(chain, entries)
    assert sum(b'"kind":"checkpoint"' in line for line in lines_of(chain.directory)) == checkpoints
    chain.close()


@pytest.mark.parametrize(("seconds", "is_due"), [(1.9, False), (2.0, True), (2.1, True)])
def test_a_checkpoint_is_due_after_so_long(opened: Opened, clock: StillClock, seconds: float, is_due: bool) -> None:
    chain = opened(checkpoint_seconds=2.0)
    clock.advance(seconds)
    chain.tend()
    assert (chain.directory / HEAD).exists() is is_due
    chain.close()


def test_a_quiet_chain_does_not_grow(opened: Opened, clock: StillClock) -> None:
    chain = opened()
    clock.advance(2)
    chain.tend()
    seq = chain.seq
    for _ in range(5):
        clock.advance(7200)
        chain.tend()
    assert chain.seq == seq and len(segment_names(chain.directory)) == 2
    chain.close()


def test_finished_segments_end_with_a_checkpoint_and_can_only_be_read(opened: Opened) -> None:
    chain = opened()
    fill(chain, 2)
    chain.rotate()
    fill(chain, 1)
    first = chain.directory / segment_names(chain.directory)[0]
    assert b'"kind":"checkpoint"' in first.read_bytes().splitlines()[-1]
    assert first.stat().st_mode & 0o777 == 0o400
    chain.close()


def test_a_second_process_is_refused(opened: Opened) -> None:
    chain = opened()
    with pytest.raises(ConfigurationError, match="another process writes the audit chain"):
        opened()
    chain.close()


def test_what_was_written_stands_behind_when_the_process_comes_again(opened: Opened, keys: AuditKeys) -> None:
    first = opened()
    fill(first, 2)
    first.close()
    second = opened()
    fill(second, 2)
    second.close()
    report = verified(first.directory, keys)
    assert report.fault is None and second.chain == first.chain and report.last == 8 == second.seq


@pytest.mark.parametrize("left", [1, 60, 70, 200])
def test_a_torn_end_stays_and_is_named_by_the_next_entry(opened: Opened, keys: AuditKeys, left: int) -> None:
    chain = opened()
    fill(chain, 3)
    os.close(chain._lock)  # as kill -9 does: no checkpoint, nothing said
    path = chain.directory / chain.segment
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(whole.splitlines(keepends=True)[-1][:left])
    assert verified(chain.directory, keys).fault is not None
    torn = path.read_bytes()
    again = opened()
    fill(again, 1)
    again.close()
    report = verified(chain.directory, keys)
    assert report.fault is None and path.read_bytes() == torn
    assert any("torn" in note for note in report.notes)


def test_a_process_killed_within_its_first_entry_leaves_no_fault(opened: Opened, keys: AuditKeys) -> None:
    chain = opened()
    fill(chain, 1)
    chain.close()
    for torn in (b"", b"abc"):
        (chain.directory / f"{chain.seq + 1:020}.{len(segment_names(chain.directory)) - 1:03}.audit").write_bytes(torn)
    again = opened()
    fill(again, 1)
    again.close()
    assert verified(chain.directory, keys).fault is None


def test_an_end_that_is_gone_is_on_record_for_good(opened: Opened, keys: AuditKeys) -> None:
    chain = opened()
    fill(chain, 5)
    chain.close()
    path = chain.directory / chain.segment
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    again = opened()
    fill(again, 5)
    again.close()
    fault = verified(chain.directory, keys).fault
    assert fault is not None and fault.entry == 4 and "4 entries were gone" in fault.what


def test_what_a_full_disk_refused_is_counted_and_told_when_there_is_room(
    opened: Opened, keys: AuditKeys, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = opened()
    fill(chain, 1)
    write, room = os.write, [30]

    def full(descriptor: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = write(descriptor, data[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", full)
    assert [chain.append(KIND_REQUEST, request_facts()) for _ in range(3)] == [False] * 3
    assert (chain.is_broken, chain.missed) == (True, 3)
    monkeypatch.setattr(os, "write", write)
    clock.advance(1.5)
    assert not chain.is_broken
    fill(chain, 1)
    assert chain.missed == 0
    chain.close()
    report = verified(chain.directory, keys)
    kinds = [json.loads(line[65:])["kind"] for line in lines_of(chain.directory) if line[64:65] == b" "]
    assert report.fault is None and kinds[-4:] == ["opened", "gap", "request", "checkpoint"]


def test_a_line_written_by_hand_is_found_by_the_next_entry(opened: Opened, keys: AuditKeys) -> None:
    chain = opened()
    fill(chain, 2)
    line = lines_of(chain.directory)[-1] + b"\n"
    with (chain.directory / chain.segment).open("ab") as file:
        file.write(line)
    fill(chain, 1)
    chain.close()
    fault = verified(chain.directory, keys).fault
    assert fault is not None and (fault.entry, fault.segment) == (4, chain.segment)


def test_a_chain_whose_end_was_changed_is_not_gone_on_with(opened: Opened) -> None:
    chain: AuditChain = opened()
    chain.close()
    path = chain.directory / chain.segment
    path.write_bytes(path.read_bytes().replace(b'"kind":"checkpoint"', b'"kind":"chickpoint"'))
    with pytest.raises(ConfigurationError, match=r"tollkeeper audit verify"):
        opened()


def test_a_segment_that_is_removed_under_its_writer_is_noticed(opened: Opened, keys: AuditKeys) -> None:
    chain = opened()
    fill(chain, 2)
    (chain.directory / chain.segment).unlink()
    chain.tend()
    assert chain.is_broken and not chain.append(KIND_REQUEST, request_facts()) and chain.missed == 1
    chain.close()
    again = opened()
    fill(again, 1)
    again.close()
    fault = verify_chain(DirectoryPlace(chain.directory), keys).fault
    assert fault is not None and "were gone when a process opened the chain" in fault.what
