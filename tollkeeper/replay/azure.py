"""Azure's inference traces of 2023 and 2024: arrival as a date and time, input and output tokens."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tollkeeper.replay.rows import read_rows
from tollkeeper.replay.trace import Place, TraceRequest

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_azure(path: Path) -> Iterator[TraceRequest]:
    """Read requests in the file's order, with Unix times. Raises MalformedTrace."""
    for place, row in read_rows(path, COLUMNS):
        yield TraceRequest(
            at_seconds=_unix_seconds(place, row["TIMESTAMP"]),
            input_tokens=place.tokens("ContextTokens", row["ContextTokens"]),
            output_tokens=place.tokens("GeneratedTokens", row["GeneratedTokens"]),
        )


def _unix_seconds(place: Place, text: str | None) -> float:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError as error:
        raise place.error(f"TIMESTAMP is {(text or '')[:40]!r}; it must be like 2023-11-16 18:15:46.68059") from error
    # The release of 2023 names no zone; only differences matter.
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
