"""How small the store keeps a month of requests, and how fast it answers what pages ask of it: 10 million requests.

The rows are made inside the engine (`stored_requests.sql`) and reach the rollups as in production, through the
materialized views of the tables they are inserted into.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from analytics.percentiles import latencies
from analytics.queries import query
from analytics.scope import Scope
from backends.store.client import StoreClient
from bench.report import Report, run_bench
from bench.store_process import StoreProcess

ROWS_PER_DAY: Final = 333_333  # 10 million in a month
TOKENS: Final = 201
TENANTS: Final = 1_000
MUST_TOKEN_BYTES: Final = 2.2
MUST_ROW_BYTES: Final = 110
MUST_COST_MS: Final = 15
MUST_TTFT_MS: Final = 120
MUST_GAPS_MS: Final = 120

_ROWS_PER_INSERT: Final = 50_000  # what an insert may hold at once is bounded by the memory of a small store
# Blocks as large as the exporter's merged ones, each on one thread, as batches come.
_INSERT_SETTINGS: Final = {
    "max_threads": 1,
    "max_insert_threads": 1,
    "max_block_size": 8_192,
    "min_insert_block_size_rows": 20_000,
    "min_insert_block_size_bytes": 128 << 20,
}
# Whole days that a table holds at most before it drops one (migrations 0005, 0013 and 0023).
KEPT_DAYS: Final = {"requests_minute": 8, "requests_recent": 4, "tenant_hour": 16}


@dataclass(frozen=True, slots=True)
class Month:
    """What is in the store: `rows` requests over `days` whole days that end at `end` (UTC); the last days have gaps."""

    rows: int
    days: int
    end: datetime
    days_with_gaps: int

    @property
    def start(self) -> datetime:
        """Return the first moment."""
        return self.end - timedelta(days=self.days)

    @property
    def gaps_from(self) -> int:
        """Return the number of the first request that has its gaps."""
        return self.rows * max(self.days - self.days_with_gaps, 0) // self.days

    @property
    def tokens(self) -> int:
        """Return how many tokens were generated; one request in 200 is refused and has none."""
        return self.rows * TOKENS * 199 // 200


def measure(report: Report) -> None:
    """Measure the size of a month and three questions on one core: of the kept month, or of one that is filled now."""
    if report.options.curve:
        _measure_curve(report, [int(float(size) * 1e6) for size in report.options.curve.split(",")])
    elif report.quick or report.options.rows or report.options.days_with_gaps:
        _measure_filled(report)
    else:
        from bench.kept_month import kept_month  # here: it makes its month with this module

        with kept_month() as (store, month):
            _measure_month(report, store, month)
            report.add("memory", store.peak_resident_bytes() / 2**20, "MiB resident at most, while asked", n=1)


def _measure_filled(report: Report) -> None:
    """Fill a store through its views, compact it, and measure it."""
    days = 3 if report.quick else 30
    rows: int = report.options.rows or days * ROWS_PER_DAY
    month = Month(rows, days, _midnight(), report.options.days_with_gaps or days)
    with StoreProcess() as store:
        fillers: int = report.options.fillers
        seconds = fill(store, month, fillers)
        report.add("filled", rows / seconds, f"requests/s, views and all, {fillers} inserts at a time", n=rows)
        _compact_now(store)
        _measure_month(report, store, month)
        report.add("memory", store.peak_resident_bytes() / 2**20, "MiB resident at most, while filling and asked", n=1)


def _measure_month(report: Report, store: StoreProcess, month: Month) -> None:
    reader, supervisor = store.client("reader"), store.client("supervisor")
    _measure_size(report, supervisor, month)
    short = "" if month.days == 30 else f"{month.days} days instead of 30"
    _measure_questions(report, reader, supervisor, month, rounds=15, unjudged=short)
    reader.close()
    supervisor.close()


def _measure_curve(report: Report, sizes: list[int]) -> None:
    """Ask the same of one store as it grows: further requests are spread over the same days; the last day has gaps."""
    filled = 0
    with StoreProcess() as store:
        reader, supervisor = store.client("reader"), store.client("supervisor")
        for size in sorted(sizes):
            month = Month(size - filled, 30, _midnight(), 1)
            seconds = fill(store, month, report.options.fillers)
            report.add(f"filled_to_{size}", (size - filled) / seconds, "requests/s, views and all", n=size - filled)
            filled = size
            _compact_now(store)
            unjudged = "" if size == 10_000_000 else f"{size:,} requests, where the bound is for 10 million"
            _measure_questions(
                report, reader, supervisor, month, rounds=7, unjudged=unjudged, suffix=f"_at_{size // 1_000}k"
            )


def _compact_now(store: StoreProcess) -> None:
    writer, supervisor = store.client("writer"), store.client("supervisor")
    compact(writer, supervisor)
    writer.close()
    supervisor.close()


def _midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def fill(store: StoreProcess, month: Month, fillers: int) -> float:
    """Insert the month, several inserts at a time; return the seconds it took."""

    def insert(first: int) -> None:
        writer = store.client("writer")
        try:
            insert_requests(writer, month, first, _ROWS_PER_INSERT, _INSERT_SETTINGS)
        finally:
            writer.close()

    begin = time.perf_counter()
    with ThreadPoolExecutor(fillers) as pool:
        list(pool.map(insert, range(0, month.rows, _ROWS_PER_INSERT)))
    return time.perf_counter() - begin


def insert_requests(writer: StoreClient, month: Month, first: int, rows: int, settings: Mapping[str, object]) -> None:
    """Insert some of the month's requests: `rows` from number `first` on, or as many as there are."""
    parameters = {
        "first": first,
        "rows": min(rows, month.rows - first),
        "all_rows": month.rows,
        "start": int(month.start.timestamp()),
        "days": month.days,
        "tenants": TENANTS,
        "gaps_from": month.gaps_from,
    }
    writer.command((Path(__file__).parent / "stored_requests.sql").read_text(), parameters, settings=settings)


def compact(writer: StoreClient, supervisor: StoreClient) -> None:
    """Merge as the engine does in its own time; what has expired goes with it."""
    for table in filled_tables(supervisor):
        merge_table(writer, table)


def filled_tables(supervisor: StoreClient) -> list[str]:
    """Return the tables that hold rows."""
    rows = supervisor.query(
        "SELECT DISTINCT table FROM system.parts WHERE active AND database = 'tollkeeper' AND rows > 0"
    )
    return [str(row["table"]) for row in rows]


def merge_table(writer: StoreClient, table: str) -> None:
    """Merge a table's parts into one for each of its partitions."""
    writer.command("OPTIMIZE TABLE {table:Identifier} FINAL", {"table": table})


def _measure_size(report: Report, supervisor: StoreClient, month: Month) -> None:
    tables = {
        str(row["table"]): (_number(row["bytes"]), _number(row["stored"]))
        for row in supervisor.query(
            "SELECT table, sum(bytes_on_disk) AS bytes, sum(rows) AS stored FROM system.parts "
            "WHERE active AND database = 'tollkeeper' GROUP BY table ORDER BY bytes DESC"
        )
    }
    (gaps,) = supervisor.query(
        "SELECT sum(column_data_compressed_bytes) + sum(column_marks_bytes) AS bytes FROM system.parts_columns "
        "WHERE active AND database = 'tollkeeper' AND table = 'requests' AND column = 'gaps'"
    )
    total = sum(size * _share_of_a_month(table, month) for table, (size, _) in tables.items())
    row_bytes = (tables["requests"][0] - _number(gaps["bytes"])) / month.rows
    of = "bytes on disk of all tables" + ("" if month.days == 30 else f", scaled from {month.days} days to 30")
    report.add(
        "bytes_per_token",
        total / month.tokens,
        of,
        must=MUST_TOKEN_BYTES,
        stretch=1.7,
        better="lower",
        n=month.rows,
        unjudged="the older requests were stored without gaps" if month.gaps_from else "",
    )
    report.add(
        "request_row", row_bytes, "bytes without gaps", must=MUST_ROW_BYTES, stretch=85, better="lower", n=month.rows
    )
    with_gaps = month.tokens * (month.rows - month.gaps_from) / month.rows
    report.add("gaps", _number(gaps["bytes"]) / with_gaps, "bytes per token", better="lower", n=month.rows)
    for table, (size, stored) in tables.items():
        if size > total / 1000:
            report.add(f"size_{table}", size / month.rows, "bytes per request", better="lower", n=stored)


def _share_of_a_month(table: str, month: Month) -> float:
    """Scale a table that forgets: after 30 days it holds a smaller share of its rows than after fewer."""
    kept = KEPT_DAYS.get(table, 30)
    return (kept / 30) / (min(kept, month.days) / month.days) if month.days < 30 else 1.0


def _measure_questions(
    report: Report,
    reader: StoreClient,
    supervisor: StoreClient,
    month: Month,
    *,
    rounds: int,
    unjudged: str,
    suffix: str = "",
) -> None:
    """Ask with the queries of `analytics`: what they take in the store, and with the answer read into Python."""
    days = {"start": int(month.start.timestamp()), "end": int(month.end.timestamp()), "tenant": None, "model": None}
    end = month.end - timedelta(hours=3)
    hour = Scope(end - timedelta(hours=1), end, asked_at=month.end)
    gaps = latencies(reader, hour, ttft_samples=1, gap_samples=1)
    if gaps.method != "exact" or gaps.total.gap is None:
        raise RuntimeError(f"the hour's percentiles are {gaps.method}")
    recent = {**hour.parameters(), "source": "requests_recent", "shown": []}
    of_the_hour = unjudged if suffix else ""  # fewer days have no fewer requests an hour
    for question, name, parameters, must, stretch, reason in (
        ("tenant_day_cost_30d", "tenant_cost", days, MUST_COST_MS, 3, unjudged),
        ("ttft_by_model_30d", "model_latency", days, MUST_TTFT_MS, 50, unjudged),
        ("gap_percentiles_1h", "percentiles_exact", recent, MUST_GAPS_MS, 60, of_the_hour),
    ):
        metric = question + suffix
        spent = _ask(reader, query(name), parameters, rounds, label=f"bench {metric}")
        supervisor.command("SYSTEM FLUSH LOGS")
        (logged,) = supervisor.query(
            "SELECT min(event_time_microseconds - query_start_time_microseconds) AS seconds, any(read_rows) AS read, "
            "min(ProfileEvents['OSCPUVirtualTimeMicroseconds']) AS cpu_us "
            "FROM system.query_log WHERE type = 'QueryFinish' AND log_comment = {label:String}",
            {"label": f"bench {metric}"},
        )
        report.add(
            metric,
            float(str(logged["seconds"])) * 1e3,
            f"ms in the store, {_number(logged['read'])} rows read",
            must=must,
            stretch=stretch,
            better="lower",
            n=rounds,
            unjudged=reason,
        )
        report.add(f"{metric}_cpu", _number(logged["cpu_us"]) / 1e3, "ms of CPU in the store", better="lower", n=rounds)
        report.add(f"{metric}_in_python", spent, "ms until the rows are Python's", better="lower", n=rounds)


def _ask(reader: StoreClient, sql: str, parameters: Mapping[str, object], rounds: int, *, label: str) -> float:
    """Return the best of several rounds, in milliseconds: what else runs on the machine only ever slows one down."""
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        rows = reader.query(sql, parameters, settings={"max_threads": 1, "log_comment": label})
        found.append((time.perf_counter() - begin) * 1e3)
        if not rows:
            raise RuntimeError(f"{label}: the store gave no rows")
    return min(found)


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"the store gave {type(value).__name__} for a count")
    return value


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days-with-gaps", type=int, default=0, help="the last so many days (default: all) have gaps")
    parser.add_argument("--fillers", type=int, default=2, help="inserts at a time while the store is filled")
    parser.add_argument("--rows", type=int, default=0, help="how many requests, in a store that is filled now")
    parser.add_argument("--curve", default="", help="millions of requests, as 1,3,10: the questions at each size")


if __name__ == "__main__":
    sys.exit(run_bench("store", measure, add_options=_add_options))
