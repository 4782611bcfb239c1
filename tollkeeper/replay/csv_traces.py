"""Reads traces in CSV files: Azure's of 2023 and 2024, and the real-world trace of the VTC artifact."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tollkeeper.replay.trace import MalformedTrace, Place, TraceRequest

AZURE_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
VTC_COLUMNS: Final = ("arrival_s", "client", "prompt_tokens", "output_tokens")
_MAX_CLIENT_LENGTH: Final = 40


def _read_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[Place, Mapping[str, str | None]]]:
    """Yield a file's rows by column name. Raises MalformedTrace if it is not CSV or lacks a column."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise MalformedTrace(f"{path.name}, line 1: the header lacks {', '.join(missing)}")
            for row in reader:
                place = Place(path, f"line {reader.line_num}")
                if None in row:
                    raise place.error(f"it has more than {len(reader.fieldnames or ())} values")
                yield place, row
    except csv.Error as error:
        raise MalformedTrace(f"{path.name} is not a CSV file: {error}") from error
    except UnicodeDecodeError as error:
        raise MalformedTrace(f"{path.name} is not text in UTF-8") from error


def read_azure(path: Path) -> Iterator[TraceRequest]:
    """Yield requests in the file's order, with Unix times. Raises MalformedTrace."""
    for place, row in _read_rows(path, AZURE_COLUMNS):
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
    # The traces of 2023 have no time zone; only differences matter.
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def read_vtc(path: Path) -> Iterator[TraceRequest]:
    """Yield requests in the file's order. Raises MalformedTrace."""
    for place, row in _read_rows(path, VTC_COLUMNS):
        client = (row["client"] or "").strip()
        if not 0 < len(client) <= _MAX_CLIENT_LENGTH:
            raise place.error(f"client must have 1 to {_MAX_CLIENT_LENGTH} characters, not {len(client)}")
        yield TraceRequest(
            at_seconds=place.number("arrival_s", row["arrival_s"]),
            input_tokens=place.tokens("prompt_tokens", row["prompt_tokens"]),
            output_tokens=place.tokens("output_tokens", row["output_tokens"]),
            client=client,
        )
