"""Rows as Parquet files, in a directory and in a bucket: each once, with its batch's id, whatever stops meanwhile."""

import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.dataset
import pyarrow.fs
import pytest

from backends.telemetry.parquet_files import LocalParquetFiles, open_parquet_files
from collector.forwarding.forwarder import DestinationAway
from collector.forwarding.parquet import ParquetDestination, known_tables
from collector.receiving import make_processors
from collector.spool import SpooledBatch
from contracts.access.identity import Identity
from contracts.errors import ConfigurationError
from contracts.recording.records import RequestRecord
from tests.collector.conftest import CollectorProcess, make_request_record, packed_batch
from tests.collector.otlp_samples import span_request
from tests.conftest import poll
from tests.file_size import no_file_beyond

NOW = 1_795_000_000_000_000_000  # 2026-11-18
DAY = 86_400_000_000_000
BUCKET = "books"
HIVE = pyarrow.dataset.partitioning(
    pyarrow.schema([("day", pyarrow.string()), ("tenant", pyarrow.string())]), flavor="hive"
)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """An S3 server over HTTP; the address of a bucket of it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"s3://{BUCKET}/prod?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "of-the-test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-test")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        files, _ = pyarrow.fs.FileSystem.from_uri(f"{address}&allow_bucket_creation=true")
        files.create_dir(BUCKET)
        yield address
    server.stop()


@pytest.fixture(params=["directory", "bucket"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "files")
    place = f"{BUCKET}/{tmp_path.name}"
    return str(request.getfixturevalue("s3")).replace(f"{BUCKET}/prod", place)


def process(batch: SpooledBatch) -> Any:
    return make_processors()[batch.signal].process(batch)


def destination(address: str, writer: str = "w", tables: tuple[str, ...] = ("requests", "traces")) -> Any:
    return ParquetDestination(open_parquet_files(address), process, writer, tables=tables, every_seconds=1.0)


def rows_of(address: str, table: str = "requests") -> list[dict[str, Any]]:
    place = Path(address).as_uri() if address.startswith("/") else address
    files, root = pyarrow.fs.FileSystem.from_uri(place)
    if files.get_file_info(f"{root}/{table}").type == pyarrow.fs.FileType.NotFound:
        return []
    found = pyarrow.dataset.dataset(f"{root}/{table}", filesystem=files, format="parquet", partitioning=HIVE)
    rows: list[dict[str, Any]] = found.to_table().to_pylist()
    return rows


def record(tenant: str = "acme", at_ns: int = NOW, **changes: Any) -> RequestRecord:
    return make_request_record(who=Identity(tenant), started_at_ns=at_ns, **changes)


def batch(name: str, *records: RequestRecord) -> SpooledBatch:
    return SpooledBatch(name, "logs", NOW, packed_batch(name, *records))


def test_rows_are_kept_by_day_and_tenant_with_their_batch_s_id(address: str):
    writer = destination(address)
    spans = SpooledBatch("s", "traces", NOW, span_request({}).SerializeToString(), False)
    writer.send(
        [batch("a/1", record(), record("globex / x", NOW - DAY)), spans, batch("a/2", record("", ttft_ns=None))]
    )
    writer.close()
    rows = sorted(rows_of(address), key=lambda row: (row["batch_id"], row["batch_row"]))
    assert [(row["batch_id"], row["batch_row"], row["day"], row["tenant"]) for row in rows] == [
        ("a/1", 0, "2026-11-18", "acme"),
        ("a/1", 1, "2026-11-17", "globex / x"),
        ("a/2", 0, "2026-11-18", None),
    ]
    assert rows[0]["cost_usd"] == Decimal("0.000123456789") and rows[0]["gaps"] == [0, 2000, 1900]
    assert rows[2]["ttft_ns"] is None, "unknown is not zero"
    assert [row["batch_id"] for row in rows_of(address, "traces")] == ["s"]


def test_batches_that_come_again_with_more_behind_them_are_there_once(address: str):
    """As after a kill between the files and the note that they are written."""
    first, second, third = batch("1", record()), batch("2", record("globex")), batch("3", record(), record("globex"))
    destination(address).send([first, second])
    destination(address).send([first, second, third])
    found = sorted((row["batch_id"], row["batch_row"]) for row in rows_of(address))
    assert found == [("1", 0), ("2", 0), ("3", 0), ("3", 1)]


def test_two_collectors_that_got_one_batch_keep_each_other_s_files(address: str):
    shared = batch("shared", record())
    destination(address, "w1").send([shared, batch("one", record())])
    destination(address, "w2").send([shared, batch("two", record())])
    found = [(row["batch_id"], row["batch_row"]) for row in rows_of(address)]
    assert sorted(found) == [("one", 0), ("shared", 0), ("shared", 0), ("two", 0)] and len(set(found)) == 3


def test_a_row_that_fits_no_column_is_left_out_alone(address: str):
    destination(address).send([batch("1", record(), record(cost_pico_usd=10**18), record())])
    assert [(row["batch_id"], row["batch_row"]) for row in rows_of(address)] == [("1", 0), ("1", 2)]


def test_tables_that_are_not_asked_for_are_not_written(tmp_path: Path):
    writer = destination(str(tmp_path / "files"), tables=("attempts",))
    spans = SpooledBatch("s", "traces", NOW, span_request({}).SerializeToString(), False)
    assert not writer.takes(spans) and writer.takes(batch("1", record()))
    writer.send([batch("1", record())])
    assert not (tmp_path / "files").exists()


def test_a_place_that_takes_nothing_is_away_and_says_so_without_credentials(tmp_path: Path, s3: str):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DestinationAway, match="takes no file"):
        destination(str(tmp_path / "file")).send([batch("1", record())])
    with pytest.raises(DestinationAway, match="takes no object") as failure:
        destination(s3.replace(f"{BUCKET}/prod", "absent/prod")).send([batch("1", record())])
    assert "of-the-test" not in str(failure.value)


def test_a_full_disk_keeps_rows_waiting_and_leaves_no_half_file(tmp_path: Path):
    place = str(tmp_path / "files")
    with no_file_beyond(500), pytest.raises(DestinationAway, match="takes no file"):
        destination(place).send([batch("1", record())])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    destination(place).send([batch("1", record())])
    assert [row["batch_id"] for row in rows_of(place)] == ["1"]


def test_a_draft_that_a_kill_left_is_no_file(tmp_path: Path):
    files = LocalParquetFiles(tmp_path)
    files.write("requests/a.parquet", pyarrow.table({"x": [1]}))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.parquet"]
    (tmp_path / "requests" / ".b.parquet.draft").write_bytes(b"torn")
    assert pyarrow.dataset.dataset(tmp_path / "requests", format="parquet").count_rows() == 1


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("books", "absolute path"),
        ("http://host/x", "absolute path"),
        ("s3:///x?region=r", "absolute path"),
        ("s3://bucket/x", "without a region"),
        ("s3://id:secret@bucket/x?region=r", "credentials"),
    ],
)
def test_an_address_that_is_none_is_refused(address: str, reason: str):
    with pytest.raises(ConfigurationError, match=reason) as refusal:
        open_parquet_files(address)
    assert "secret" not in refusal.value.message.replace("AWS_SECRET", "")


def test_a_table_that_is_none_is_refused():
    with pytest.raises(ConfigurationError, match="'content'; give some of requests"):
        known_tables(["requests", "content"])


@pytest.mark.service
def test_a_killed_collector_loses_and_doubles_no_row(start_collector: Callable[..., CollectorProcess], s3: str):
    collector = start_collector(forward_parquet=s3, forward_parquet_seconds=0.3)
    sent = []
    for number in range(30):
        sent.append(f"gateway/{number}")
        assert collector.post(packed_batch(sent[-1], make_request_record(), make_request_record())).status_code == 200
        if number % 10 == 9:
            if number == 19:
                poll(lambda: bool(rows_of(s3)), "the first file")
            collector.kill()
            collector.start()
        time.sleep(0.02)
    expected = sorted((name, place) for name in sent for place in (0, 1))
    poll(lambda: len(rows_of(s3)) >= len(expected), "the files")
    assert collector.terminate() == 0
    assert sorted((row["batch_id"], row["batch_row"]) for row in rows_of(s3)) == expected
