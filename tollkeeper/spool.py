"""`tollkeeper spool inspect`: records queued for the store, and dead letters with their causes."""

from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from backends.segment_log.segment_reader import SegmentReader
from collector.inspection import Letter, SpoolContents, inspect_spool, read_letters
from contracts.errors import InvalidRecord
from contracts.recording.records import event_name_of
from tollkeeper.options import DEFAULT_DATA, AsJson, Data
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(help="The collector's spool: records on disk, not yet in the store.", no_args_is_help=True)

_TIME_BYTES: Final = 8  # header before each record in the gateway's dead letters


@app.callback()
def _group() -> None:
    """Keep `inspect` as a subcommand, although it is the only one."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """The collector's spool and dead letters, and the gateway's dead letters by event."""

    contents: SpoolContents
    causes: Counter[str]
    last: list[Letter]
    set_aside: Counter[str]

    def as_json(self) -> dict[str, Any]:
        """Return the inspection as JSON types; times in ISO 8601."""
        contents = self.contents
        return {
            "segments": contents.segments,
            "disk_bytes": contents.disk_bytes,
            "waiting_bytes": contents.waiting_bytes,
            "waiting_batches": dict(contents.waiting_batches),
            "oldest_received_at": _iso(contents.oldest_received_at_ns),
            "newest_received_at": _iso(contents.newest_received_at_ns),
            "damaged_stretches": contents.damaged_stretches,
            "missing": contents.missing.as_json(),
            "dead_letters": dict(self.causes),
            "last_dead_letters": [
                {
                    "at": _iso(letter.at_ns),
                    "cause": letter.cause,
                    "reason": letter.reason,
                    "batch_id": letter.batch_id,
                    "index": letter.index,
                    "bytes": len(letter.payload),
                }
                for letter in self.last
            ],
            "gateway_dead_letters": dict(self.set_aside),
        }


@app.command("inspect")
def inspect_command(
    data: Data = DEFAULT_DATA,
    letters: Annotated[int, typer.Option(min=0, help="Number of recent dead letters to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show records that wait for the store, and dead letters: records that were refused repeatedly.

    Changes nothing; the collector may run. Payloads are not shown, because they may contain personal data.
    """
    with one_line_errors():
        found = inspect(data, letters)
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)


def inspect(data: Path, letters: int) -> Inspection:
    """Read a data directory's spool and dead letters. Raises ConfigurationError if there is no spool."""
    directory = data / "spool"
    contents = inspect_spool(directory)
    causes: Counter[str] = Counter()
    last: deque[Letter] = deque(maxlen=letters)
    for letter in read_letters(directory):
        causes[letter.cause] += 1
        last.append(letter)
    set_aside: Counter[str] = Counter()
    for kept in sorted(data.glob("journal*/dead-letters")):
        for entry in SegmentReader(kept).waiting():
            try:
                set_aside[event_name_of(entry.payload[_TIME_BYTES:])] += 1
            except InvalidRecord:
                set_aside["unreadable"] += 1
    return Inspection(contents, causes, list(last), set_aside)


def _print(found: Inspection) -> None:
    contents = found.contents
    waiting = ", ".join(f"{number} of {signal}" for signal, number in sorted(contents.waiting_batches.items()))
    lines = [
        f"spool: {contents.segments} segments, {contents.disk_bytes} bytes on disk",
        f"waiting: {contents.waiting_bytes} bytes; batches: {waiting or 'none'}",
    ]
    if contents.oldest_received_at_ns is not None:
        lines.append(f"received: {_iso(contents.oldest_received_at_ns)} to {_iso(contents.newest_received_at_ns)}")
    if contents.damaged_stretches:
        lines.append(
            f"damaged: {contents.damaged_stretches} unreadable sections (one may be a batch that is being written)"
        )
    if contents.missing.is_any:
        lines.append(f"missing: {contents.missing.line()}")
    lines.append("dead letters: " + (_counts(found.causes) or "none"))
    lines.append("set aside by the gateway: " + (_counts(found.set_aside) or "none"))
    Console().print(Text("\n".join(lines)))
    if found.last:
        rows = found.as_json()["last_dead_letters"]
        print_table(("at", "cause", "batch_id", "index", "bytes", "reason"), rows, lambda row, name: str(row[name]), "")


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.most_common())


def _iso(at_ns: int | None) -> str | None:
    return None if at_ns is None else datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="milliseconds")
