"""How fast a record is packed, unpacked, journalled and put into OTLP, on one core, for a stream of 201 tokens."""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from backends.segment_log.segments import SegmentLog
from backends.telemetry.otlp import build_export_request, parse_export_request
from bench.report import Report, run_bench
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.records import EVENT_NAMES, RequestRecord, decode_record, encode_record

GAPS: Final = 200
# A core that serves 25,000 requests/s has 40 us for each: a seventh of it may go to packing, half to the journal.
MUST_PER_SECOND: Final = 175_000
APPEND_MUST_PER_SECOND: Final = 50_000
APPENDED_TOGETHER: Final = 64
_DISTINCT: Final = 256  # different records, so that no branch predictor or cache learns one by heart
_SECONDS_PER_ROUND: Final = 0.2
_START_NS: Final = 1_790_000_000_000_000_000


def example_records(count: int, gaps: int = GAPS) -> list[RequestRecord]:
    """Create records of streamed chats: gaps around 10 ms (1,000 units) with a long tail, reproducibly."""
    source = random.Random(0)
    return [_example(source, _START_NS + index * 1_000_000, gaps) for index in range(count)]


def _example(source: random.Random, started_at_ns: int, gaps: int) -> RequestRecord:
    return RequestRecord(
        request_id=uuid7(started_at_ns).bytes,
        started_at_ns=started_at_ns,
        duration_ns=2_000_000_000 + source.randrange(10**9),
        who=Identity("acme", "search", "ranking", "key_0193", "user-7", {"feature": "summary"}),
        api="chat.completions",
        finish_reason="stop",
        stream=True,
        requested_model="small",
        model="small",
        provider="openai",
        pool="small",
        replica="small-1",
        gateway="gw-1",
        ttft_ns=80_000_000 + source.randrange(10**7),
        admission_ns=40_000,
        gaps=pack_gaps([min(int(source.lognormvariate(6.9, 0.5)), 500_000) for _ in range(gaps)]),
        gap_clock="gateway",
        usage=Usage(input_text=900 + source.randrange(200), cache_read_text=128, output_text=gaps + 1),
        count_method="reported",
        cost_pico_usd=270_000_000 + source.randrange(10**8),
        cost_basis="price_card",
        price_version="2026-11",
        max_tokens=512,
        request_bytes=4_200,
        response_bytes=48_000,
        trace_id=source.randbytes(16),
        span_id=source.randbytes(8),
    )


def rate_per_second(work: Callable[[], int], rounds: int) -> float:
    """Return the best rate of several rounds: `work` does some items and returns how many.

    The best, not the mean: other processes on the machine only ever slow a round down (`timeit`'s reasoning).
    """
    return max(_one_round(work) for _ in range(rounds))


def _one_round(work: Callable[[], int]) -> float:
    done = 0
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < _SECONDS_PER_ROUND:
        done += work()
    return done / elapsed


def measure(report: Report) -> None:
    """Measure packed records with 200 gaps: pack, unpack, weigh, batch, and append to a journal without fsync."""
    rounds = 3 if report.quick else 15
    records = example_records(_DISTINCT)
    packed = [encode_record(record) for record in records]
    _measure_packing(report, records, packed, rounds)
    _measure_otlp(report, records, packed, rounds)
    with tempfile.TemporaryDirectory() as directory:
        log = SegmentLog(Path(directory), max_bytes=1 << 30)
        try:
            _measure_journal(report, log, packed, rounds)
        finally:
            log.close()


def _measure_packing(report: Report, records: list[RequestRecord], packed: list[bytes], rounds: int) -> None:
    def encode_all() -> int:
        for record in records:
            encode_record(record)
        return len(records)

    def decode_all() -> int:
        for body in packed:
            decode_record(body)
        return len(packed)

    report.add("encode", rate_per_second(encode_all, rounds), "records/s", must=MUST_PER_SECOND, n=rounds)
    report.add("decode", rate_per_second(decode_all, rounds), "records/s", must=MUST_PER_SECOND, n=rounds)
    report.add("packed_size", sum(map(len, packed)) / len(packed), "bytes/record", better="lower", n=len(packed))


def _measure_otlp(report: Report, records: list[RequestRecord], packed: list[bytes], rounds: int) -> None:
    event_name = EVENT_NAMES[RequestRecord]
    entries = [(event_name, record.started_at_ns, body) for record, body in zip(records, packed, strict=True)]
    batch_id = uuid7(_START_NS).hex
    batch = build_export_request(batch_id, "tollkeeper-gateway", entries)

    def build() -> int:
        build_export_request(batch_id, "tollkeeper-gateway", entries)
        return len(entries)

    def parse() -> int:
        return len(parse_export_request(batch).records)

    report.add("otlp_build", rate_per_second(build, rounds), "records/s", must=MUST_PER_SECOND, n=rounds)
    report.add("otlp_parse", rate_per_second(parse, rounds), "records/s", must=MUST_PER_SECOND, n=rounds)


def _measure_journal(report: Report, log: SegmentLog, packed: list[bytes], rounds: int) -> None:
    def append_each() -> int:
        for body in packed:
            log.append(body)
        log.release(log.end)
        return len(packed)

    def append_batches() -> int:
        for start in range(0, len(packed), APPENDED_TOGETHER):
            log.append_many(packed[start : start + APPENDED_TOGETHER])
        log.release(log.end)
        return len(packed)

    report.add("append", rate_per_second(append_each, rounds), "records/s", must=APPEND_MUST_PER_SECOND, n=rounds)
    report.add(f"append_by_{APPENDED_TOGETHER}", rate_per_second(append_batches, rounds), "records/s", n=rounds)


if __name__ == "__main__":
    sys.exit(run_bench("records", measure))
