"""The books: rerating a month's requests, previewed and booked, and closing a month of 50 tenants, in CPU seconds.

CPU is this process's and the store's together. The month before last is rerated with 1 million requests, last month is
closed with 10 million, to which the bounds belong; with fewer (`--requests`) the rows say so and are not judged.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

from analytics.books.booking import RerateWish, book_rerate, preview_rerate
from analytics.books.closing import close_month
from analytics.books.rerating import RerateQuestion
from analytics.cost.periods import month_of
from analytics.scope import Period
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.prices import create_price
from backends.store.client import StoreClient
from bench.report import Report, run_bench
from bench.store_process import StoreProcess
from contracts.control import Tenant
from contracts.pricing.prices import NewPrice
from contracts.rules.periods import zone_of
from migrations.database import migrate_database

TENANTS: Final = 50
MODELS: Final = 13
RERATED: Final = 1_000_000
CLOSED: Final = 10_000_000
_QUICK: Final = 50_000
_ROWS_PER_INSERT: Final = 100_000
_PREVIEW_SECONDS: Final = 5.0
_WRITE_SECONDS: Final = 15.0
_CLOSE_SECONDS: Final = 60.0


@dataclass(slots=True)
class Spent:
    """CPU seconds that something took, in this process and in the store."""

    seconds: float = 0.0


def measure(report: Report) -> None:
    """Measure rerating, previewed and written, and closing a month of 50 tenants."""
    asked = report.options.requests or (_QUICK if report.quick else None)
    rows, closed_rows = asked or RERATED, asked or CLOSED
    author = Author("bench", datetime.now(UTC))
    last = _month_before(author.at)
    rerated = _month_before(last.start)
    with StoreProcess() as store, _control_database(author) as database:
        client = store.client("writer")
        _fill(client, rerated, rows)
        wish = RerateWish(RerateQuestion(rerated.start.date(), rerated.end.date(), author.at), reason="bench")
        with cpu_of(store) as scan:
            client.query("SELECT sum(cost_usd), sum(tokens_input_text), uniqExact(tenant, model) FROM requests")
        with cpu_of(store) as preview:
            found = preview_rerate(client, database, wish)
        with cpu_of(store) as write:
            row, _ = book_rerate(client, database, author, wish)
        assert row is not None and row.entry_count == len(found.entries)
        with cpu_of(store) as again:
            assert book_rerate(client, database, author, wish)[0] is None
        _fill(client, last, closed_rows)
        with cpu_of(store) as close:
            done = close_month(client, database, author, f"{last.start:%Y-%m}")
        assert sum(one.document is not None for one in done) > TENANTS // 2
        client.close()
    short = "" if rows >= RERATED else f"{rows:,} requests, where the bound is for {RERATED:,}"
    of = f"s of CPU for {rows:,} requests"
    report.add("scan", scan.seconds, f"{of}: one full scan", better="lower", n=rows)
    entries = f"{of}, {len(found.entries):,} entries"
    report.add("rerate_preview", preview.seconds, entries, must=_PREVIEW_SECONDS, stretch=2.0, better="lower", n=rows,
               unjudged=short)  # fmt: skip
    report.add("rerate_write", write.seconds, entries, must=_WRITE_SECONDS, stretch=6.0, better="lower", n=rows,
               unjudged=short)  # fmt: skip
    report.add("rerate_again", again.seconds, f"{entries}: nothing to book", better="lower", n=rows)
    short = "" if closed_rows >= CLOSED else f"{closed_rows:,} requests, where the bound is for {CLOSED:,}"
    closing = f"s of CPU for {closed_rows:,} requests, {len(done)} tenants"
    report.add("close_month", close.seconds, closing, must=_CLOSE_SECONDS, stretch=20.0, better="lower",
               n=closed_rows, unjudged=short)  # fmt: skip


@contextmanager
def cpu_of(store: StoreProcess) -> Iterator[Spent]:
    spent = Spent()
    began = time.process_time() + _store_cpu(store.pid)
    yield spent
    spent.seconds = time.process_time() + _store_cpu(store.pid) - began


def _store_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _month_before(moment: datetime) -> Period:
    last = moment.replace(day=1) - timedelta(days=1)
    return month_of(last.year, last.month, zone_of("UTC"))


def _fill(client: StoreClient, month: Period, rows: int) -> None:
    sql = (Path(__file__).parent / "stored_requests.sql").read_text()
    days = (month.end - month.start).days
    whole = {"all_rows": rows, "start": month.start_s, "days": days, "tenants": TENANTS, "gaps_from": rows}
    for first in range(0, rows, _ROWS_PER_INSERT):
        client.command(sql, {"first": first, "rows": min(_ROWS_PER_INSERT, rows - first), **whole})


@contextmanager
def _control_database(author: Author) -> Iterator[ControlDatabase]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'control.db'}"
        migrate_database(url, say=lambda line: None)
        database = ControlDatabase(url)
        with database.session() as session:
            for number in range(1, TENANTS + 1):
                name = f"tenant-{number:04}"
                session.add(Tenant(id=name, name=name, created_at=author.at))
            for number in range(1, MODELS):
                rates = {"input_text": Decimal(number), "output_text": Decimal(4 * number)}
                create_price(session, author, NewPrice(f"model-{number}", f"card-{number}", rates))  # type: ignore[arg-type]
        yield database
        database.close()


def _options(parser: argparse.ArgumentParser) -> None:
    counts = f"default {RERATED:,} and {CLOSED:,}"
    parser.add_argument("--requests", type=int, help=f"number of requests of both months ({counts})")


if __name__ == "__main__":
    sys.exit(run_bench("books", measure, add_options=_options))
