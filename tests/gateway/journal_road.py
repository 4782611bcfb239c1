"""A journal, the shippers over it, and the collector at its end."""

import pytest

from backends.telemetry.otlp import parse_export_request
from contracts.recording.ids import uuid7
from contracts.recording.records import RequestRecord, decode_record, encode_record
from gateway.records.journal import Journal
from gateway.records.shipper import Shipper

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"


def refusal(status: int) -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n".encode()


def number_of(packed: bytes) -> int:
    record = decode_record(packed)
    assert isinstance(record, RequestRecord)
    return int.from_bytes(record.request_id, "big")


class Road:
    """A journal and shippers over it; `batches` is what the collector received, in order."""

    def __init__(self, directory, collector) -> None:
        self.directory = directory
        self.collector = collector
        self.journal = Journal(directory, max_bytes=1 << 30)
        self.made = 0
        self.shippers: list[Shipper] = []

    def write(self, count: int) -> None:
        for _ in range(count):
            self.made += 1
            record = RequestRecord(
                request_id=self.made.to_bytes(16, "big"), started_at_ns=self.made * 1000, duration_ns=1
            )
            self.journal.append(record.started_at_ns, encode_record(record))

    def shipper(self) -> Shipper:
        made = Shipper(
            self.journal, self.directory, f"http://127.0.0.1:{self.collector.port}", lambda: uuid7(10**18), b"key"
        )
        self.shippers.append(made)
        return made

    def restart(self) -> Shipper:
        """Open everything again, as a process that was killed would."""
        self.journal.close()
        self.journal = Journal(self.directory, max_bytes=1 << 30)
        return self.shipper()

    @property
    def batches(self):
        return [parse_export_request(request.body) for request in self.collector.requests]

    @property
    def numbers(self) -> list[int]:
        """The records the collector has, by the number they were written with, each batch id counted once."""
        seen, found = set(), []
        for batch in self.batches:
            if batch.batch_id not in seen:
                seen.add(batch.batch_id)
                found += [number_of(packed) for _, _, packed in batch.records]
        return found


@pytest.fixture
async def road(tmp_path, upstream):
    upstream.always(OK)
    made = Road(tmp_path / "journal", upstream)
    yield made
    for shipper in made.shippers:
        await shipper._pool.close()
    made.journal.close()
