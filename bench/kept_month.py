"""A month of ten million requests, made once and kept: what the store, analytics and pages are measured on alike.

`python -m bench.kept_month --seconds 100` goes on where the last run stopped and ends with status 3 while rows are
missing, so that a month can be made in pieces.
"""

import argparse
import fcntl
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree
from typing import Final, Self

from bench.store import Month, filled_tables, insert_requests, merge_table
from bench.store_process import StoreProcess

REQUESTS: Final = 10_000_000
DAYS: Final = 30
DAYS_WITH_GAPS: Final = 1  # the last one; with all, a month takes a quarter of an hour of a core to make
# The minutes of a week and the requests of three days leave the store in their time, and with them what is measured.
_GOOD_FOR: Final = timedelta(days=1)
_ROWS_PER_INSERT: Final = 100_000
_MEMORY_BYTES: Final = 6 << 30
# Each insert is one block on one thread, told by its token, so that one that was cut off can be made again.
_SETTINGS: Final = {
    "max_threads": 1,
    "max_insert_threads": 1,
    "max_block_size": 8_192,
    "min_insert_block_size_rows": _ROWS_PER_INSERT,
    "min_insert_block_size_bytes": 1 << 30,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
}
_MISSING: Final = 3


@dataclass(frozen=True, slots=True)
class _Progress:
    """What is in a kept store: the first `filled` of the month's requests; then which tables were merged."""

    month: Month
    filled: int = 0
    merged: tuple[str, ...] = ()
    is_compact: bool = False

    @classmethod
    def read(cls, path: Path, month: Month) -> Self | None:
        """Read what was written; `None` if there is nothing, or another month."""
        try:
            written = json.loads(path.read_text())
            kept = Month(written["rows"], written["days"], datetime.fromisoformat(written["end"]), written["with_gaps"])
        except (OSError, ValueError, KeyError):
            return None
        is_same = (kept.rows, kept.days, kept.days_with_gaps) == (month.rows, month.days, month.days_with_gaps)
        is_good = is_same and abs(kept.end - month.end) <= _GOOD_FOR
        merged = tuple(written.get("merged", ()))
        return cls(kept, written["filled"], merged, written["is_compact"]) if is_good else None

    def write(self, path: Path) -> None:
        """Write it in one step."""
        values = {
            "rows": self.month.rows,
            "days": self.month.days,
            "end": self.month.end.isoformat(),
            "with_gaps": self.month.days_with_gaps,
            "filled": self.filled,
            "merged": self.merged,
            "is_compact": self.is_compact,
        }
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(values))
        fresh.replace(path)


def kept_directory(rows: int) -> Path:
    """Return where a month of the given number of requests is kept."""
    return Path.home() / ".cache" / "tollkeeper-bench" / f"month-{rows}"


@contextmanager
def kept_month(
    rows: int = REQUESTS, *, days_with_gaps: int = DAYS_WITH_GAPS, core: int | None = None
) -> Iterator[tuple[StoreProcess, Month]]:
    """Open the kept month, filled and compacted first if it is not: minutes, once. One process at a time.

    Newer migrations are applied to it. Whoever writes to it spoils it for others.
    """
    with _opened(rows, days_with_gaps, core) as (store, progress, path):
        while not progress.is_compact:
            progress = _further(store, progress, path)
        yield store, progress.month


@contextmanager
def _opened(rows: int, days_with_gaps: int, core: int | None) -> Iterator[tuple[StoreProcess, _Progress, Path]]:
    directory = kept_directory(rows)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "month.json"
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with (directory / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        month = Month(rows, DAYS, midnight, days_with_gaps)
        progress = _Progress.read(path, month)
        if progress is None:
            rmtree(directory / "data", ignore_errors=True)
            progress = _Progress(month)
            progress.write(path)
        (directory / "data").mkdir(exist_ok=True)
        with StoreProcess(core=core, memory_bytes=_MEMORY_BYTES, directory=directory / "data") as store:
            yield store, progress, path


def _further(store: StoreProcess, progress: _Progress, path: Path) -> _Progress:
    """Insert once more, or merge one table of what is full."""
    month, first = progress.month, progress.filled
    writer, supervisor = store.client("writer"), store.client("supervisor")
    try:
        if first < month.rows:
            token = {"insert_deduplication_token": f"month {first}"}
            insert_requests(writer, month, first, _ROWS_PER_INSERT, {**_SETTINGS, **token})
            further = replace(progress, filled=min(first + _ROWS_PER_INSERT, month.rows))
        else:
            left = sorted(set(filled_tables(supervisor)) - set(progress.merged))
            if left:
                merge_table(writer, left[0])
            further = replace(progress, merged=(*progress.merged, *left[:1]), is_compact=not left)
    finally:
        writer.close()
        supervisor.close()
    further.write(path)
    return further


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the month, or some more of it; 3 while it is not whole."""
    parser = argparse.ArgumentParser(prog="python -m bench.kept_month", description=main.__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--days-with-gaps", type=int, default=DAYS_WITH_GAPS)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with _opened(options.requests, options.days_with_gaps, None) as (store, progress, path):
        while not progress.is_compact and time.monotonic() - began < options.seconds:
            progress = _further(store, progress, path)
    print(f"{progress.filled} of {progress.month.rows} requests{', compacted' if progress.is_compact else ''}")
    return 0 if progress.is_compact else _MISSING


if __name__ == "__main__":
    sys.exit(main())
