import os
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.segment_log.segment_damage import read_losses
from backends.segment_log.segments import Entry, Fsync, LogFull, Position, SegmentLog
from contracts.errors import ConfigurationError

HEADER = 32
PLAIN_HEADER = 8  # of entries as releases before wrote them
PLENTY = 1 << 30


def everything(log: SegmentLog, after: Position | None = None) -> list[Entry]:
    return log.read(log.cursor if after is None else after, max_entries=10**9, max_bytes=PLENTY)


def payloads(entries: list[Entry]) -> list[bytes]:
    return [entry.payload for entry in entries]


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.segment"))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    log = SegmentLog(tmp_path / "log", max_bytes=PLENTY)
    yield log
    log.close()


def test_entries_come_back_in_order_with_their_places(log: SegmentLog) -> None:
    first = log.append(b"one")
    second = log.append_many([b"", b"three"])
    found = everything(log)
    assert payloads(found) == [b"one", b"", b"three"]
    assert found[0].end == found[1].start == first
    assert found[2].end == second == log.end
    assert log.pending_bytes == 3 * HEADER + 8


@given(st.lists(st.tuples(st.sampled_from(["put", "append", "crc32", "adler32"]), st.binary(max_size=300)), max_size=8))
def test_entries_are_read_whichever_way_they_were_written_and_whichever_checksum_they_have(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str, bytes]]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log = SegmentLog(directory, max_bytes=PLENTY)
    for way, payload in written:
        if way in ("crc32", "adler32"):  # as releases before wrote them
            log.close()
            length = struct.pack("<I", len(payload))
            header = length + struct.pack("<I", zlib.crc32(payload, zlib.crc32(length)))
            if way == "adler32":
                header = struct.pack("<II", len(payload) | 1 << 31, zlib.adler32(payload, len(payload)))
            with open(max([*segments(directory), directory / "000000000000.segment"]), "ab") as file:
                file.write(header + payload)
            log = SegmentLog(directory, max_bytes=PLENTY)
        elif way == "put":
            assert log.put(payload) == log.end.segment
        else:
            log.append(payload)
    found = everything(log)
    assert payloads(found) == [payload for _, payload in written]
    headers = [HEADER if way in ("put", "append") else PLAIN_HEADER for way, _ in written]
    assert log.pending_bytes == sum(headers) + sum(len(payload) for _, payload in written)
    assert log.missing.entries == log.missing.unknown == 0
    assert not log.corrupt_entries and not log.truncated_bytes
    log.close()
    again = SegmentLog(directory, max_bytes=PLENTY)
    assert payloads(everything(again)) == payloads(found)
    again.close()


def test_a_read_stops_at_each_of_its_bounds(log: SegmentLog) -> None:
    places = [log.append(bytes([n]) * 10) for n in range(5)]
    assert len(log.read(log.start, max_entries=2, max_bytes=PLENTY)) == 2
    assert len(log.read(log.start, max_entries=9, max_bytes=29)) == 2
    assert len(log.read(log.start, max_entries=9, max_bytes=30)) == 3
    assert len(log.read(log.start, max_entries=9, max_bytes=PLENTY, until=places[3])) == 4
    assert log.read(places[1], max_entries=9, max_bytes=PLENTY, until=places[1]) == []


def test_a_read_gives_one_entry_even_if_it_is_over_the_byte_bound(log: SegmentLog) -> None:
    log.append(b"x" * 3_000_000)
    log.append(b"y")
    assert [len(p) for p in payloads(log.read(log.start, max_entries=9, max_bytes=5))] == [3_000_000]


def test_the_bound_holds_below_at_and_above(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=200)
    log.append(b"x" * 50)
    with pytest.raises(LogFull, match="82 of 200 bytes"):
        log.append(b"x" * (200 - 82 - HEADER + 1))
    fullness = [log.is_full]
    log.append(b"x" * (200 - 82 - HEADER))
    fullness.append(log.is_full)
    assert fullness == [False, True]
    assert log.pending_bytes == 200
    with pytest.raises(LogFull):
        log.append(b"")
    log.release(everything(log)[0].end)
    log.append(b"x" * 50)
    assert log.pending_bytes == 200
    log.close()


def test_many_entries_that_do_not_fit_together_are_refused_together(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=40)
    with pytest.raises(LogFull):
        log.append_many([b"x" * 10, b"y" * 20])
    assert everything(log) == []
    log.close()


def test_the_cursor_survives_a_reopening(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY)
    log.append_many([b"a", b"b", b"c"])
    log.release(everything(log)[1].end)
    log.close()
    again = SegmentLog(tmp_path, max_bytes=PLENTY)
    assert payloads(everything(again)) == [b"c"]
    assert again.pending_bytes == HEADER + 1
    again.close()


def test_a_damaged_cursor_repeats_rather_than_loses(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY)
    log.append_many([b"a", b"b"])
    log.release(everything(log)[0].end)
    log.close()
    (tmp_path / "cursor").write_bytes(b"\xff" * 20)
    again = SegmentLog(tmp_path, max_bytes=PLENTY)
    assert payloads(everything(again)) == [b"a", b"b"]
    again.close()


def test_places_are_not_used_twice_after_a_loss(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY)
    log.append(b"kept")
    lost = log.append(b"lost")
    log.close()
    os.truncate(segments(tmp_path)[0], HEADER + 4)
    again = SegmentLog(tmp_path, max_bytes=PLENTY)
    assert again.append(b"new") > lost
    assert payloads(everything(again)) == [b"kept", b"new"]
    again.close()


def test_a_release_beyond_what_a_power_cut_left_does_not_swallow_new_entries(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY)
    log.append(b"a" * 100)
    log.release(log.end)
    log.close()
    for path in segments(tmp_path):
        path.unlink()
    again = SegmentLog(tmp_path, max_bytes=PLENTY)
    again.append(b"new")
    assert payloads(everything(again)) == [b"new"]
    again.close()


def test_a_release_deletes_the_segments_before_it_and_no_others(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY, segment_bytes=30)
    for n in range(6):
        log.append(bytes([n]) * 12)  # each takes a segment
    assert len(segments(tmp_path)) == 6
    log.release(everything(log)[2].start)
    assert len(segments(tmp_path)) == 4
    log.release(log.end)
    assert len(segments(tmp_path)) == 1
    assert log.pending_bytes == 0
    log.close()


def test_retained_segments_can_be_read_again_up_to_their_bound(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY, segment_bytes=60, retain_bytes=88)
    for n in range(6):
        log.append(bytes([n]) * 12)
    log.release(log.end)
    log.close()
    again = SegmentLog(tmp_path, max_bytes=PLENTY, segment_bytes=60, retain_bytes=88)
    assert everything(again) == []
    assert [p[0] for p in payloads(everything(again, again.start))] == [4, 5]
    again.close()


def test_releasing_backwards_changes_nothing_and_beyond_the_end_is_an_error(log: SegmentLog) -> None:
    log.append_many([b"a", b"b"])
    log.release(log.end)
    log.release(log.start)
    assert log.pending_bytes == 0
    with pytest.raises(ValueError, match="beyond the log's end"):
        log.release(Position(log.end.segment, log.end.offset + 1))


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_a_torn_tail_at_every_byte_loses_only_the_torn_entry(tmp_path: Path, is_acknowledged: bool) -> None:
    whole = SegmentLog(tmp_path / "whole", max_bytes=PLENTY)
    whole.append_many([b"first", b"", b"third entry"])
    sound = whole.end.offset
    numbers = (tmp_path / "whole" / "numbers").read_bytes()
    whole.append(b"the torn one")
    size = whole.end.offset
    whole.close()
    if not is_acknowledged:  # killed within the write, or a power cut before all of it was on disk
        (tmp_path / "whole" / "numbers").write_bytes(numbers)
    for cut in range(sound, size):
        directory = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "whole", directory)
        os.truncate(segments(directory)[-1], cut)
        log = SegmentLog(directory, max_bytes=PLENTY)
        assert payloads(everything(log)) == [b"first", b"", b"third entry"], cut
        if is_acknowledged:
            assert [(loss.first, loss.last) for loss in read_losses(directory)] == [(4, 4)]
        else:
            assert (log.truncated_bytes, log.corrupt_entries) == (cut - sound, 0)
            assert not read_losses(directory)
        log.append(b"next")
        assert payloads(everything(log))[-1] == b"next"
        log.close()


def test_every_single_bit_flip_is_detected_and_sound_neighbours_survive(tmp_path: Path) -> None:
    whole = SegmentLog(tmp_path / "whole", max_bytes=PLENTY)
    entries = [b"first", b"second!", b"last"]
    whole.append_many(entries)
    whole.append(b"")
    starts = [entry.start.offset for entry in everything(whole)]
    whole.close()
    content = segments(tmp_path / "whole")[0].read_bytes()
    for bit in range(starts[1] * 8, starts[2] * 8):
        directory = tmp_path / f"bit{bit}"
        shutil.copytree(tmp_path / "whole", directory)
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << (bit % 8)
        segments(directory)[0].write_bytes(damaged)
        log = SegmentLog(directory, max_bytes=PLENTY)
        assert payloads(everything(log)) == [b"first", b"last", b""], bit
        everything(log)
        assert (log.corrupt_entries, log.truncated_bytes) == (1, 0), bit
        assert [(loss.first, loss.last) for loss in read_losses(directory)] == [(2, 2)]
        log.close()


def test_damage_in_an_older_segment_does_not_stop_the_reader(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY, segment_bytes=3 * (HEADER + 12))
    for n in range(6):
        log.append(bytes([n]) * 12)
    path = segments(tmp_path)[0]
    path.write_bytes(b"\xff" * path.stat().st_size)
    assert [p[0] for p in payloads(everything(log))] == [3, 4, 5]
    assert log.corrupt_entries == 1
    log.close()


def test_a_stretch_of_zeros_is_not_taken_for_empty_entries(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY)
    log.append(b"kept")
    log.close()
    with open(segments(tmp_path)[0], "ab") as file:
        file.write(bytes(64))
    again = SegmentLog(tmp_path, max_bytes=PLENTY)
    assert payloads(everything(again)) == [b"kept"]
    assert again.corrupt_entries == 1
    again.close()


def test_a_second_opening_of_the_directory_is_refused(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY)
    script = (
        "import sys; from pathlib import Path; from backends.segment_log.segments import SegmentLog; "
        "SegmentLog(Path(sys.argv[1]), max_bytes=1)"
    )
    other = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert f"ConfigurationError: directory {tmp_path} is in use by another process" in other.stderr
    log.close()
    SegmentLog(tmp_path, max_bytes=1).close()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=rf"directory {tmp_path}/file/log cannot be written"):
        SegmentLog(tmp_path / "file" / "log", max_bytes=1)


def test_a_full_disk_is_a_full_log_and_leaves_no_half_entry(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(b"before")
    really_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, block: really_write(descriptor, block[:11]))
        with pytest.raises(LogFull, match="No space left"):
            log.append(b"does not fit")
    log.append(b"after")
    assert payloads(everything(log)) == [b"before", b"after"]


def test_what_was_appended_survives_kill_9(tmp_path: Path) -> None:
    script = (
        "import sys, itertools; from pathlib import Path; from backends.segment_log.segments import SegmentLog\n"
        "log = SegmentLog(Path(sys.argv[1]), max_bytes=1 << 30, segment_bytes=2000)\n"
        "for n in itertools.count():\n"
        "    log.append(b'%d' % n); print(n, flush=True)"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 500:
            break
    child.kill()
    acknowledged = max([500, *(int(line) for line in child.stdout.read().split("\n")[:-1])])
    child.stdout.close()
    child.wait()
    log = SegmentLog(tmp_path, max_bytes=PLENTY)
    found = [int(p) for p in payloads(everything(log))]
    assert found == list(range(len(found)))
    assert len(found) in (acknowledged + 1, acknowledged + 2)  # the last may have been written and not yet told
    log.close()


def test_one_thread_reads_and_releases_while_another_appends(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=PLENTY, segment_bytes=500)
    total = 3000

    def write() -> None:
        for n in range(total):
            log.append(b"%d" % n)

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    while len(seen) < total:
        found = log.read(log.cursor, max_entries=50, max_bytes=PLENTY)
        seen += [int(entry.payload) for entry in found]
        if found:
            log.release(found[-1].end)
    writer.join()
    assert seen == list(range(total))
    assert log.corrupt_entries == 0
    assert log.pending_bytes == 0
    log.close()


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.binary(max_size=40), min_size=1, max_size=4)),
        st.tuples(st.just("release"), st.integers(0, 6)),
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=actions, fsync=st.sampled_from(["never", "always"]))
def test_any_sequence_of_actions_equals_a_list(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, Any]], fsync: Fsync
) -> None:
    directory = tmp_path_factory.mktemp("log")

    def reopened() -> SegmentLog:
        return SegmentLog(directory, max_bytes=400, segment_bytes=100, fsync=fsync)

    log = reopened()
    model: list[bytes] = []
    for action, value in actions:
        held = sum(len(p) + HEADER for p in model)
        if action == "append":
            if held + sum(len(p) + HEADER for p in value) > 400:
                with pytest.raises(LogFull):
                    log.append_many(value)
            else:
                assert log.append_many(value) == log.end
                model += value
        elif action == "release":
            found = log.read(log.cursor, max_entries=value, max_bytes=PLENTY)
            if found:
                log.release(found[-1].end)
            model = model[value:]
        elif action == "read":
            assert payloads(log.read(log.cursor, max_entries=value, max_bytes=PLENTY)) == model[:value]
        else:
            log.close()
            log = reopened()
        assert payloads(everything(log)) == model
        assert log.pending_bytes == sum(len(p) + HEADER for p in model)
        assert log.corrupt_entries == log.truncated_bytes == 0
    log.close()
    shutil.rmtree(directory)
