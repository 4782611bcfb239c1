"""Reads Mooncake's traces: JSON lines with arrival in milliseconds, lengths, and hash ids of blocks of 512 tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tollkeeper.replay.trace import MalformedTrace, Place, TraceRequest

BLOCK_TOKENS: Final = 512
MARK: Final = "input_length"  # a field that only this format has


class _Line(msgspec.Struct, frozen=True):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []


_decoder: Final = msgspec.json.Decoder(_Line)


def read_mooncake(path: Path) -> Iterator[TraceRequest]:
    """Yield requests in the file's order. Raises MalformedTrace."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            place = Place(path, f"line {number}")
            try:
                line = _decoder.decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise MalformedTrace(f"{path.name}, line {number}: {error}") from error
            yield TraceRequest(
                at_seconds=place.number("timestamp", line.timestamp) / 1000,
                input_tokens=place.tokens("input_length", line.input_length),
                output_tokens=place.tokens("output_length", line.output_length),
                prefix_blocks=tuple(line.hash_ids),
            )
