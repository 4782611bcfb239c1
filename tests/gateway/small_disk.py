"""Fills a disk of a few MiB with a gateway's journal and drains it. Run in a directory that is such a disk."""

import asyncio
import errno
import os
import sys
import time
from pathlib import Path

from backends.segment_log.segments import SegmentLog
from contracts.access.identity import ANONYMOUS
from contracts.errors import JournalFull
from contracts.recording.ids import uuid7
from contracts.recording.records import RequestRecord, encode_record
from gateway.limits.admission import Admission
from gateway.records.journal import RECORD_ROOM_BYTES, Journal
from gateway.records.shipper import Shipper

RECORD = encode_record(RequestRecord(request_id=b"r" * 16, started_at_ns=1, duration_ns=1))


def occupy(path: Path) -> None:
    """Reserve every block that is left."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC


def admits(admission: Admission) -> str:
    """Admit a request and end it; return why not."""
    time.sleep(0.11)  # longer than the disk's last answer is believed
    try:
        admission.settle(admission.admit(ANONYMOUS))
    except JournalFull as full:
        return full.message
    return ""


async def acknowledge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    except asyncio.IncompleteReadError:
        writer.close()


async def ship(journal: Journal, directory: Path) -> int:
    collector = await asyncio.start_server(acknowledge, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{collector.sockets[0].getsockname()[1]}"
    shipper = Shipper(journal, directory, url, lambda: uuid7(time.time_ns()), b"key")
    await shipper.flush(within_seconds=20.0)
    collector.close()
    return shipper.shipped_records


def check_journal(disk: Path) -> None:
    directory = disk / "journal"
    journal = Journal(directory, max_bytes=1 << 30)
    admission = Admission(journal, max_concurrent=100)
    assert asyncio.run(ship(journal, directory)) == 0  # makes the plan's file, as a gateway does when it starts
    under_way = [admission.admit(ANONYMOUS) for _ in range(5)]
    occupy(disk / "others")
    message = admits(admission)
    while not message:  # of what was reserved at a time some is left for more
        journal.append(1, RECORD + bytes(RECORD_ROOM_BYTES - len(RECORD) - 40))
        message = admits(admission)
    assert "disk that holds the gateway's journal is full" in message and journal.is_disk_full, message
    assert not journal.append_all([(1, RECORD)]), "a refusal's record takes the room of requests in progress"
    for ticket in under_way:
        assert journal.append(1, RECORD + bytes(RECORD_ROOM_BYTES - len(RECORD) - 40)), "an admitted request is lost"
        admission.settle(ticket)
    assert journal.dropped_records == 0
    journal.close()
    occupy(disk / "more")  # also what the journal gave back
    again = Journal(directory, max_bytes=1 << 30)  # a restart on a full disk
    held = [path.name for path in directory.glob("*.segment")]
    assert held and again.pending_bytes > 0 and admits(Admission(again, max_concurrent=1))
    asyncio.run(ship(again, directory))
    assert again.pending_bytes == 0
    assert not {path.name for path in directory.glob("*.segment")} & set(held), "a drained segment stays"
    assert admits(Admission(again, max_concurrent=1)) == "" and again.append(1, RECORD)
    again.close()
    for path in (disk / "others", disk / "more"):
        path.unlink()


def check_one_segment(disk: Path) -> None:
    """A disk smaller than a segment: what is released of it must come back."""
    log = SegmentLog(disk / "spool", max_bytes=1 << 30, retain_bytes=1 << 30)
    for _ in range(3):
        written = 0
        try:
            while True:
                log.append(b"x" * 30_000)
                written += 1
        except Exception as error:
            assert type(error).__name__ == "DiskFull", error
        assert written > 20
        log.release(log.end)
        assert log.pending_bytes == 0
    log.close()


if __name__ == "__main__":
    here = Path(sys.argv[1])
    assert os.statvfs(here).f_blocks * os.statvfs(here).f_frsize < 1 << 24, "this would fill a large disk"
    check_journal(here)
    check_one_segment(here)
    print("drained")
