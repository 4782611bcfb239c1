"""Writes rows as Parquet files, by table, day and tenant, for query engines that read a directory or a bucket."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote

import pyarrow

from backends.store.columns import arrow_batch
from backends.telemetry.parquet_files import ParquetFiles
from collector.forwarding.forwarder import DestinationAway, Gathering
from collector.rows import Processed
from collector.spool import SpooledBatch
from contracts.errors import ConfigurationError, InvalidRecord, InvalidRequest, Unavailable
from contracts.recording.names import ATTEMPTS, ENGINE_STEPS, GPU_SAMPLES, KV_EVENTS, LOGS, METRICS, REQUESTS, TRACES
from contracts.recording.names import Table as RowTable

# Not `content`: prompts and answers can be erased in the store, but not in these files.
TABLES: Final = {
    table.name: table for table in (REQUESTS, ATTEMPTS, ENGINE_STEPS, KV_EVENTS, GPU_SAMPLES, TRACES, LOGS, METRICS)
}
BATCH_ID: Final = "batch_id"
BATCH_ROW: Final = "batch_row"
_TENANT: Final = "tenant"
_NO_TENANT: Final = "__HIVE_DEFAULT_PARTITION__"
_GATHERED_BYTES: Final = 32 << 20  # as received; a file of requests has about a tenth of it
_DIGEST_BYTES: Final = 8
_NS_PER_DAY: Final = 86_400_000_000_000

Process = Callable[[SpooledBatch], Processed]


def known_tables(names: Collection[str]) -> tuple[str, ...]:
    """Validate table names and return them. Raises ConfigurationError if one cannot be written to files."""
    for name in names:
        if name not in TABLES:
            raise ConfigurationError(
                f"TOLLKEEPER_FORWARD_PARQUET_TABLES has {name!r}; give some of {', '.join(TABLES)}, comma-separated"
            )
    return tuple(names)


@dataclass(slots=True)
class _Partition:
    """Rows of one file, each with its batch's id and its index among the batch's rows of the table."""

    table: RowTable[Any]
    rows: list[Any] = field(default_factory=list)
    batch_ids: list[str] = field(default_factory=list)
    batch_rows: list[int] = field(default_factory=list)


class ParquetDestination:
    """Writes `TABLE/day=YYYY-MM-DD/tenant=NAME/WRITER-FIRST.parquet`.

    `FIRST` identifies the first batch of a group. After a crash the group is sent again from the same batch on, so a
    file is replaced by one that has all of its rows.
    """

    name = "parquet"

    def __init__(
        self, files: ParquetFiles, process: Process, writer: str, *, tables: Collection[str], every_seconds: float
    ) -> None:
        """Set the parts; `writer` is this collector's unique name in the files. Raises ConfigurationError."""
        self._files = files
        self._process = process
        self._writer = writer
        self._tables = frozenset(known_tables(tables))
        self.gathering = Gathering(_GATHERED_BYTES, every_seconds)

    def takes(self, batch: SpooledBatch) -> bool:
        """Return whether a table of the batch's signal is written to files."""
        if batch.signal == "traces":
            return TRACES.name in self._tables
        if batch.signal == "metrics":
            return METRICS.name in self._tables
        return bool(self._tables - {TRACES.name, METRICS.name})

    def send(self, batches: Sequence[SpooledBatch]) -> None:
        """Write the batches' rows. Raises DestinationAway; some files may be written then, so repeat all batches."""
        partitions: dict[str, _Partition] = {}
        for batch in batches:
            self._add(batch, partitions)
        name = f"{self._writer}-{_name_of(batches[0])}.parquet"
        try:
            for folder, partition in partitions.items():
                if (built := _built(partition)).num_rows:
                    self._files.write(f"{folder}/{name}", built)
        except Unavailable as error:
            raise DestinationAway(error.message) from error

    def close(self) -> None:
        """Do nothing: no file is open between calls."""

    def _add(self, batch: SpooledBatch, partitions: dict[str, _Partition]) -> None:
        try:
            processed = self._process(batch)
        except InvalidRequest:
            return  # the store's exporter writes it to the dead letters
        for name, rows in processed.tables.items():
            if name not in self._tables:
                continue
            time = next(column for column in rows.table.columns if column.kind == "time_ns")
            owner = next((column for column in rows.table.columns if column.name == _TENANT), None)
            for place, row in enumerate(rows.rows):
                folder = _folder(name, time.read(row), None if owner is None else owner.read(row))
                partition = partitions.get(folder)
                if partition is None:
                    partition = partitions[folder] = _Partition(rows.table)
                partition.rows.append(row)
                partition.batch_ids.append(batch.batch_id)
                partition.batch_rows.append(place)


def _folder(table: str, at_ns: int, tenant: str | None) -> str:
    day = f"{datetime.fromtimestamp(at_ns // _NS_PER_DAY * 86_400, UTC):%Y-%m-%d}"
    if tenant is None:
        return f"{table}/day={day}"
    return f"{table}/day={day}/tenant={quote(tenant, safe='') or _NO_TENANT}"


def _name_of(batch: SpooledBatch) -> str:
    """Return a batch's part of a file name: its time of receipt, so that names sort by time, and its id's digest."""
    received = datetime.fromtimestamp(batch.received_at_ns // 1_000_000_000, UTC)
    return f"{received:%Y%m%dT%H%M%S}-{blake2b(batch.batch_id.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"


def _built(partition: _Partition) -> pyarrow.Table:
    """Return the rows as columns, without rows that do not fit: the store's exporter dead-letters those."""
    try:
        built = arrow_batch(partition.table, partition.rows)
        places: Sequence[int] = range(len(partition.rows))
    except InvalidRecord:
        places = [at for at, row in enumerate(partition.rows) if _fits(partition.table, row)]
        built = arrow_batch(partition.table, [partition.rows[at] for at in places])
    if _TENANT in built.column_names:  # the column is in the folder's name (Hive partitioning)
        built = built.drop_columns([_TENANT])
    ids = pyarrow.array([partition.batch_ids[at] for at in places], pyarrow.string())
    rows = pyarrow.array([partition.batch_rows[at] for at in places], pyarrow.uint32())
    return built.append_column(BATCH_ID, ids).append_column(BATCH_ROW, rows)


def _fits(table: RowTable[Any], row: Any) -> bool:
    try:
        arrow_batch(table, [row])
    except InvalidRecord:
        return False
    return True
