"""Damage to a segment log loses the entries whose bytes it overlaps, names them, and loses no others."""

import errno
import os
import random
import shutil
import struct
import threading
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from backends.segment_log import segment_damage
from backends.segment_log.segment_damage import read_losses
from backends.segment_log.segments import Entry, Position, SegmentLog
from contracts.errors import ConfigurationError

SECTOR = 4096
PLENTY = 1 << 30
SEGMENT = 3 * SECTOR


def everything(log: SegmentLog) -> list[Entry]:
    return log.read(log.cursor, max_entries=10**9, max_bytes=PLENTY)


def payloads(log: SegmentLog) -> list[bytes]:
    return [entry.payload for entry in everything(log)]


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.segment"))


def opened(directory: Path, **settings) -> SegmentLog:
    return SegmentLog(directory, max_bytes=PLENTY, **{"segment_bytes": SEGMENT, **settings})


def named(directory: Path) -> list[int]:
    """The numbers of the entries that are written down as missing."""
    losses = [(loss.first, loss.last) for loss in read_losses(directory)]
    return [
        number for first, last in losses if first is not None and last is not None for number in range(first, last + 1)
    ]


def plain(payload: bytes) -> bytes:
    """An entry as the release before wrote it, and what a caller may put into a payload."""
    return struct.pack("<II", len(payload) | 1 << 31, zlib.adler32(payload, len(payload))) + payload


def written(directory: Path, contents: list[bytes]) -> list[tuple[int, Position, Position, bytes]]:
    """Write entries; return them with their numbers and places."""
    log = opened(directory)
    found = []
    for number, payload in enumerate(contents, start=1):
        end = log.append(payload)
        found.append((number, Position(end.segment, end.offset - len(payload) - 32), end, payload))
    log.close()
    return found


tricky = st.one_of(
    st.binary(max_size=200),
    st.integers(0, 2 * SECTOR).map(lambda size: random.Random(size).randbytes(size)),
    st.integers(0, SECTOR).map(bytes),
    st.binary(max_size=40).map(lambda inner: plain(inner) * 3),
    st.integers(1, 9).map(lambda number: struct.pack("<IIQQII", 16 | 1 << 31, 0x9D4EB7F3, number, number, 1 << 31, 0)),
)
entries = st.lists(tricky, min_size=1, max_size=25)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    contents=entries,
    place=st.integers(0, 10**6),
    seed=st.one_of(st.none(), st.integers(0, 2**32)),
    released=st.integers(0, 6),
    is_open=st.booleans(),
    sectors=st.sampled_from([1, 1, 1, 2]),
)
def test_a_damaged_sector_loses_the_entries_it_overlaps_and_names_them(
    tmp_path_factory, contents, place, seed, released, is_open, sectors
):
    directory = tmp_path_factory.mktemp("log")
    known = written(directory, contents)
    log = opened(directory)
    if released:
        log.release(known[min(released, len(known)) - 1][2])
    if not is_open:
        log.close()
    files = [path for path in segments(directory) if path.stat().st_size]
    assume(files)
    path = files[place % len(files)]
    before = path.read_bytes()
    at = place // len(files) % ((len(before) + SECTOR - 1) // SECTOR) * SECTOR
    sector = before[at : at + sectors * SECTOR]
    damage = bytes(len(sector)) if seed is None else random.Random(seed).randbytes(len(sector))
    after = before[:at] + damage + before[at + len(sector) :]
    with path.open("r+b") as file:
        file.write(after)
    if not is_open:
        log = opened(directory)
    waiting = known[released:]
    sound = [
        (number, payload)
        for number, start, end, payload in waiting
        if start.segment != int(path.stem) or before[start.offset : end.offset] == after[start.offset : end.offset]
    ]
    assert payloads(log) == [payload for _, payload in sound]
    log.close()
    again = opened(directory)
    assert payloads(again) == [payload for _, payload in sound]
    again.close()
    lost = sorted({number for number, *_ in waiting} - {number for number, _ in sound})
    assert named(directory) == lost
    assert again.missing.entries == len(lost) and again.missing.unknown == 0
    kept = {loss.kept_as for loss in read_losses(directory)}
    assert kept == ({path.name} if lost else set())
    if lost:
        assert (directory / "damaged" / path.name).read_bytes()[at : at + len(damage)] == damage
    shutil.rmtree(directory)


@settings(max_examples=150, deadline=None)
@given(
    contents=entries, place=st.integers(0, 10**6), what=st.sampled_from(["cut", "zeros", "gone", "noise", "shifted"])
)
def test_a_file_that_is_cut_zeroed_gone_or_rewritten_loses_what_was_in_it_and_names_it(
    tmp_path_factory, contents, place, what
):
    directory = tmp_path_factory.mktemp("log")
    known = written(directory, contents)
    files = [path for path in segments(directory) if path.stat().st_size]
    path = files[place % len(files)]
    before = path.read_bytes()
    cut = place // len(files) % len(before)
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {
                "cut": before[:cut],
                "zeros": bytes(len(before)),
                "noise": random.Random(place).randbytes(len(before)),
                "shifted": before[:cut] + before[cut + 1 :],
            }[what]
        )
    log = opened(directory)
    log.look_for_damage()
    number_of = int(path.stem)

    def is_sound(start: Position, end: Position) -> bool:
        if start.segment != number_of:
            return True
        return bool({"cut": end.offset <= cut, "shifted": end.offset <= cut or start.offset > cut}.get(what, False))

    sound = [(number, payload) for number, start, end, payload in known if is_sound(start, end)]
    assert payloads(log) == [payload for _, payload in sound]
    assert named(directory) == sorted({number for number, *_ in known} - {number for number, _ in sound})
    log.append(b"goes on")
    assert payloads(log)[-1] == b"goes on"
    log.close()
    again = opened(directory)
    again.look_for_damage()
    assert named(directory) == sorted({number for number, *_ in known} - {number for number, _ in sound})
    again.close()
    shutil.rmtree(directory)


def test_numbers_go_on_over_restarts_and_a_file_of_numbers_that_is_lost(tmp_path):
    for _ in range(3):
        log = opened(tmp_path)
        log.append_many([b"one", b"two"])
        log.close()
    (tmp_path / "numbers").unlink()
    log = opened(tmp_path)
    log.append(b"seven")
    log.close()
    (tmp_path / "numbers").write_bytes(os.urandom(8192))
    log = opened(tmp_path)
    log.append(b"eight")
    log.close()
    path = segments(tmp_path)[1]
    path.write_bytes(path.read_bytes()[:-1])
    log = opened(tmp_path)
    log.look_for_damage()
    assert payloads(log) == [b"one", b"two", b"one", b"one", b"two", b"seven", b"eight"]
    log.close()


@pytest.mark.parametrize("copy", [0, 1])
def test_either_copy_of_the_numbers_is_enough(tmp_path, copy):
    written(tmp_path, [b"a" * 100] * 10)
    content = bytearray((tmp_path / "numbers").read_bytes())
    content[copy * SECTOR : (copy + 1) * SECTOR] = os.urandom(SECTOR)
    (tmp_path / "numbers").write_bytes(content)
    segments(tmp_path)[0].unlink()
    log = opened(tmp_path)
    assert named(tmp_path) == list(range(1, 11))
    log.append(b"eleventh")
    assert payloads(log) == [b"eleventh"]
    log.close()


def test_what_is_missing_is_named_by_the_times_around_it(tmp_path):
    def time_of(payload: bytes) -> int:
        return int.from_bytes(payload[:8], "little")

    log = opened(tmp_path, segment_bytes=PLENTY)
    for second in range(1, 6):
        log.append((second * 10**9).to_bytes(8, "little") + bytes(SECTOR))
    log.close()
    damage(segments(tmp_path)[0], SECTOR)
    log = opened(tmp_path, time_of=time_of)
    log.look_for_damage()
    (loss,) = read_losses(tmp_path)
    assert (loss.entries, loss.first, loss.last) == (1, 2, 2)
    assert (loss.after_ns, loss.before_ns) == (10**9, 3 * 10**9)
    assert log.missing.as_json() == {
        "entries": 1,
        "uncounted_losses": 0,
        "from": "1970-01-01T00:00:01.000Z",
        "to": "1970-01-01T00:00:03.000Z",
    }
    assert loss.line() == (
        "1 entry (number 2) written after 1970-01-01T00:00:01.000Z and before 1970-01-01T00:00:03.000Z"
    )
    log.close()


def damage(path: Path, at: int, size: int = SECTOR) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))


def test_a_sector_that_the_disk_cannot_read_is_as_one_of_zeros(tmp_path, monkeypatch):
    known = written(tmp_path, [bytes([number]) * 1000 for number in range(10)])
    really_read = os.pread

    def failing(descriptor, length, offset):
        if (
            offset < 2 * SECTOR
            and offset + length > SECTOR
            and os.readlink(f"/proc/self/fd/{descriptor}").endswith(".segment")
        ):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really_read(descriptor, length, offset)

    log = opened(tmp_path)
    monkeypatch.setattr(os, "pread", failing)
    overlapping = [number for number, start, end, _ in known if start.offset < 2 * SECTOR and end.offset > SECTOR]
    assert payloads(log) == [payload for number, *_, payload in known if number not in overlapping]
    assert named(tmp_path) == overlapping
    log.close()


@pytest.mark.parametrize("length", [1000, (1 << 31) - 1, 200 << 20])
def test_a_length_into_the_gigabytes_allocates_nothing_of_that_size(tmp_path, length):
    written(tmp_path, [b"first", b"second", b"third"])
    path = segments(tmp_path)[0]
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, 37 + 24, length | 1 << 31)
    path.write_bytes(content)
    os.truncate(path, 300 << 20)  # sparse, so that the length may lead to somewhere
    tracemalloc.start()
    log = opened(tmp_path)
    assert payloads(log) == [b"first", b"third"]
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert named(tmp_path) == [2]
    log.close()


def test_the_release_before_reads_what_this_one_writes(tmp_path):
    """As `frames` of the release before walks: a damaged entry is passed over if its length leads to a sound one."""
    contents = [b"", b"x" * 3000, plain(b"inner"), b"last"]
    written(tmp_path, contents)
    content, found, at = segments(tmp_path)[0].read_bytes(), [], 0

    def sound(at: int) -> bytes | None:
        if at + 8 > len(content):
            return None
        length, checksum = struct.unpack_from("<II", content, at)
        is_adler, length = length >> 31, length & (1 << 31) - 1
        payload = content[at + 8 : at + 8 + length]
        good = zlib.adler32(payload, length) if is_adler else zlib.crc32(payload, zlib.crc32(content[at : at + 4]))
        return payload if len(payload) == length and checksum == good else None

    while at < len(content):
        payload = sound(at)
        if payload is None:
            at += 8 + (struct.unpack_from("<I", content, at)[0] & (1 << 31) - 1)
            assert sound(at) is not None
            continue
        found.append(payload)
        at += 8 + len(payload)
    assert found == contents


def test_damage_in_a_segment_of_the_release_before_is_named_without_a_count(tmp_path):
    tmp_path.joinpath("000000000001.segment").write_bytes(b"".join(plain(bytes([n]) * 500) for n in range(20)))
    damage(segments(tmp_path)[0], 0, 600)
    log = opened(tmp_path)
    log.append(b"new")
    assert payloads(log)[-1] == b"new"
    assert (log.missing.entries, log.missing.unknown) == (0, 1)
    log.close()


def test_kept_segments_are_bounded_in_number_and_bytes(tmp_path, monkeypatch):
    written(tmp_path, [bytes(SEGMENT - 100)] * 30)
    for path in segments(tmp_path)[:12]:
        damage(path, 0)
    log = opened(tmp_path)
    log.look_for_damage()
    kept = sorted(path.name for path in (tmp_path / "damaged").glob("*.segment"))
    assert kept == [path.name for path in segments(tmp_path)[4:12]]
    assert named(tmp_path) == list(range(1, 13))
    log.release(log.end)
    log.close()
    assert len(segments(tmp_path / "damaged")) == segment_damage.MAX_FILES
    monkeypatch.setattr(segment_damage, "MAX_FILE_BYTES", SEGMENT)
    written(tmp_path, [bytes(SEGMENT - 100)] * 3)
    damage(segments(tmp_path)[-1], 0)
    log = opened(tmp_path)
    log.look_for_damage()
    assert len(segments(tmp_path / "damaged")) == 1
    log.close()


def test_losses_are_bounded_and_none_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_damage, "_MAX_LOSSES_BYTES", 2000)
    written(tmp_path, [bytes([number]) * (SEGMENT - 100) for number in range(40)])
    for path in segments(tmp_path)[1:]:
        damage(path, 0)
    log = opened(tmp_path)
    log.look_for_damage()
    assert log.missing.entries == 39
    log.close()
    assert (tmp_path / "damaged" / "losses.jsonl").stat().st_size < 3000
    assert sum(loss.entries or 0 for loss in read_losses(tmp_path)) == 39


def test_damage_to_what_is_released_is_no_loss(tmp_path):
    known = written(tmp_path, [bytes([number]) * 1000 for number in range(30)])
    log = opened(tmp_path, retain_bytes=PLENTY)
    log.release(known[25][2])
    for path in segments(tmp_path)[:2]:
        damage(path, 0, path.stat().st_size)
    log.read(log.start, max_entries=10**9, max_bytes=PLENTY)
    assert payloads(log) == [payload for *_, payload in known[26:]]
    assert not (tmp_path / "damaged").exists()
    log.close()


def test_a_directory_of_damage_that_is_removed_is_settled(tmp_path):
    written(tmp_path, [b"a" * SECTOR] * 5)
    damage(segments(tmp_path)[0], 0)
    log = opened(tmp_path)
    log.look_for_damage()
    assert log.missing.entries
    log.release(log.end)
    log.close()
    shutil.rmtree(tmp_path / "damaged")
    log = opened(tmp_path)
    log.look_for_damage()
    assert not log.missing.entries
    log.close()


def test_a_file_of_numbers_that_is_a_directory_is_named(tmp_path):
    (tmp_path / "numbers").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        opened(tmp_path)


def test_damage_that_is_met_while_another_thread_appends_loses_nothing_else(tmp_path):
    log = opened(tmp_path)
    total, stop = 0, threading.Event()

    def write() -> None:
        nonlocal total
        while not stop.is_set():
            log.append(b"%d" % total + bytes(200))
            total += 1

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    hit = 0
    try:
        while hit < 6:
            found = log.read(log.cursor, max_entries=40, max_bytes=PLENTY)
            seen += [int(entry.payload.rstrip(b"\0")) for entry in found]
            if not found:
                continue
            log.release(found[-1].end)
            waiting = [path for path in segments(tmp_path) if path.stat().st_size > 2 * SECTOR]
            if len(waiting) > 1 and int(waiting[-1].stem) > log.cursor.segment:
                damage(waiting[-1], SECTOR)
                hit += 1
    finally:
        stop.set()
        writer.join()
    seen += [int(payload.rstrip(b"\0")) for payload in payloads(log)]
    log.close()
    assert sorted(set(range(total)) - set(seen)) == [number - 1 for number in sorted(named(tmp_path))]
    assert seen == sorted(seen) and log.missing.entries == total - len(seen) > 0
