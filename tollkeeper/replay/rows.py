"""Rows of a CSV file with a header line, each with its place in the file."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tollkeeper.replay.trace import MalformedTrace, Place


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[Place, Mapping[str, str | None]]]:
    """Read a file's rows by column name. Raises MalformedTrace if it is no CSV text or lacks a column."""
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
