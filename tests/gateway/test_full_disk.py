"""A disk that is full: nothing admitted is lost, nothing more is admitted, and shipping drains it."""

import builtins
import errno
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backends.segment_log import disk_room, segment_file
from contracts.access.identity import ANONYMOUS
from contracts.errors import JournalFull
from gateway.limits.admission import Admission
from gateway.records.journal import RECORD_ROOM_BYTES, Journal
from tests.gateway.journal_road import refusal, road

__all__ = ["road"]  # fixtures

ROOT = Path(__file__).parents[2]
SMALL_DISK = "mount -t tmpfs -o size=6m none {0} && exec {1} -m tests.gateway.small_disk {0}"


class FullDisk:
    """Refuses new files and further blocks, as a full disk does; what is there can be read and written over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.refusals = 0
        self.file_open = os.open
        self.stream_open = io.open
        self.reserve = disk_room.reserve_blocks
        monkeypatch.setattr(os, "open", self._os_open)
        monkeypatch.setattr(io, "open", self._io_open)
        monkeypatch.setattr(builtins, "open", self._io_open)
        monkeypatch.setattr(segment_file, "reserve_blocks", self._reserve)

    def _refuse(self):
        self.refusals += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _os_open(self, path, flags, *rest, **named):
        if self.is_full and flags & os.O_CREAT and not os.path.exists(path):
            self._refuse()
        return self.file_open(path, flags, *rest, **named)

    def _io_open(self, path, mode="r", *rest, **named):
        if self.is_full and set(mode) & set("wx"):
            self._refuse()
        return self.stream_open(path, mode, *rest, **named)

    def _reserve(self, descriptor, offset, length):
        if self.is_full:
            self._refuse()
        return self.reserve(descriptor, offset, length)


@pytest.fixture
def disk(monkeypatch):
    return FullDisk(monkeypatch)


async def test_shipping_drains_a_full_disk_and_deletes_its_segments(road, disk):
    road.journal._log._segment_bytes = 2000
    road.write(1200)
    segments = set(road.directory.glob("*.segment"))
    shipper = road.shipper()
    disk.is_full = True
    road.collector.then(refusal(503))
    assert not await shipper._ship_all()
    assert await shipper._ship_all()
    assert road.numbers == list(range(1, road.made + 1)) and road.journal.pending_bytes == 0
    assert len({batch.batch_id for batch in road.batches}) == len(road.batches) - 1  # none but the refused one twice
    assert len(segments) > 10 and len(set(road.directory.glob("*.segment"))) == 1


async def test_a_restart_on_a_full_disk_goes_on_with_the_batch_under_way(road, disk):
    road.write(3)
    road.collector.then("reset")
    assert not await road.shipper()._ship_all()
    disk.is_full = True
    again = road.restart()
    assert await again._ship_all()
    assert road.collector.requests[1].body == road.collector.requests[0].body
    assert road.numbers == [1, 2, 3] and road.journal.pending_bytes == 0


async def test_a_refused_batch_is_halved_on_a_full_disk(road, disk):
    road.write(4)
    shipper = road.shipper()
    disk.is_full = True
    road.collector.then(*[refusal(400)] * 3)
    for _ in range(4):
        await shipper._ship_all()
    assert road.journal.pending_bytes == 0 and disk.refusals == 0


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal", max_bytes=1 << 30)
    yield journal
    journal.close()


def test_what_was_admitted_before_the_disk_filled_up_has_its_room(journal, disk):
    admission = Admission(journal, max_concurrent=100)
    for _ in range(10):
        admission.admit(ANONYMOUS)
    disk.is_full = True
    while admission.in_flight < 100:  # some more fit in what was reserved ahead
        try:
            admission.admit(ANONYMOUS)
        except JournalFull as refused:
            assert "disk" in refused.message
            break
    assert journal.is_disk_full and not admission.has_journal_room
    assert 10 < admission.in_flight < 100
    assert not journal.append_all([(1, b"a refusal")])
    for _ in range(admission.in_flight):
        assert journal.append(1, b"x" * (RECORD_ROOM_BYTES - 40))
    assert journal.dropped_records == 0
    disk.is_full = False
    journal.release(journal.end)
    admission.admit(ANONYMOUS)


def test_room_is_kept_when_a_segment_ends(journal, disk):
    journal._log._segment_bytes = 100_000
    assert journal.promise(20 * RECORD_ROOM_BYTES)
    for _ in range(10):
        assert journal.append(1, b"x" * (RECORD_ROOM_BYTES - 40))
    disk.is_full = True
    for _ in range(10):
        assert journal.append(1, b"x" * (RECORD_ROOM_BYTES - 40))
    assert len(journal.read(journal.cursor, max_entries=99, max_bytes=1 << 30)) == 20


def test_a_full_disk_is_asked_ten_times_a_second_at_most(journal, disk):
    disk.is_full = True
    for _ in range(1000):
        assert not journal.has_room(RECORD_ROOM_BYTES)
    assert disk.refusals < 50


def test_reserved_room_does_not_show_in_the_files_size_and_is_given_back(journal, tmp_path):
    assert journal.has_room(4 << 20)
    [segment] = (tmp_path / "journal").glob("*.segment")
    assert segment.stat().st_size == 0 and segment.stat().st_blocks * 512 >= 4 << 20
    journal.close()
    assert segment.stat().st_blocks == 0


async def test_on_a_full_disk_requests_are_refused_and_nothing_is_lost(start_gateway, kit, disk):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])))
    disk.is_full = True
    statuses = [(await gateway.chat()).status for _ in range(3)]
    journal, recorder = gateway.gateway.journal, gateway.gateway.recorder
    assert statuses == [503] * 3
    assert "disk" in (await gateway.chat()).error["message"]
    assert (journal.dropped_records, recorder.unrecorded_rejections, journal.pending_bytes) == (0, 4, 0)
    ready = await gateway.ask(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (ready.status, ready.json["problems"]) == (503, ["journal_full", "disk_full"])
    disk.is_full = False
    journal._ask_disk_at = 0.0
    assert (await gateway.chat()).status == 200
    assert len(gateway.requests()) == 1


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs util-linux's unshare")
def test_on_a_real_small_disk_nothing_admitted_is_lost_and_it_drains(tmp_path):
    command = SMALL_DISK.format(tmp_path, sys.executable)
    in_namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*in_namespace, f"mount -t tmpfs none {tmp_path}"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a file system of their own")
    done = subprocess.run([*in_namespace, command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "drained", done.stderr
