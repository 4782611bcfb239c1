"""The real trace of the VTC artifact: arrival in seconds, client, input and output tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tollkeeper.replay.rows import read_rows
from tollkeeper.replay.trace import TraceRequest

COLUMNS: Final = ("arrival_s", "client", "prompt_tokens", "output_tokens")
_MAX_CLIENT_LENGTH: Final = 40


def read_vtc(path: Path) -> Iterator[TraceRequest]:
    """Read requests in the file's order. Raises MalformedTrace."""
    for place, row in read_rows(path, COLUMNS):
        client = (row["client"] or "").strip()
        if not 0 < len(client) <= _MAX_CLIENT_LENGTH:
            raise place.error(f"client must have 1 to {_MAX_CLIENT_LENGTH} characters, not {len(client)}")
        yield TraceRequest(
            at_seconds=place.number("arrival_s", row["arrival_s"]),
            input_tokens=place.tokens("prompt_tokens", row["prompt_tokens"]),
            output_tokens=place.tokens("output_tokens", row["output_tokens"]),
            client=client,
        )
