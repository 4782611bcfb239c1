"""The prompts of `tollkeeper gate`: from a JSONL file, or stored prompts of a tenant."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from analytics.queries import query
from analytics.rows import text_of
from backends.store.client import StoreClient
from contracts.errors import ConfigurationError

MOST_PROMPTS: Final = 10_000
_MOST_LINE_BYTES: Final = 8 << 20
# Fields of a chat's body that are sent unchanged. Sampling parameters are set by the gate.
_KEPT: Final = ("max_tokens", "max_completion_tokens", "tools", "tool_choice", "response_format", "stop")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One chat to send: its messages, and other fields of its body."""

    number: int
    messages: list[Any]
    more: Mapping[str, Any]


def read_prompts(path: Path, limit: int | None = None) -> list[Prompt]:
    """Read a JSONL file: each line has `messages` or a `prompt`, or is a batch line with such a `body`.

    Raises ConfigurationError, which names the line but does not quote it.
    """
    found: list[Prompt] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if len(found) == (limit or MOST_PROMPTS):
                    break
                if line.strip():
                    found.append(_prompt(f"{path}, line {number}", len(found), _decoded(path, number, line)))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise ConfigurationError(f"{path} holds no prompts; write one JSON object a line, such as {{'prompt': '...'}}")
    return found


def recorded_prompts(
    store: StoreClient, tenant: str, model: str, now: datetime, hours: float, limit: int
) -> list[Prompt]:
    """Return the latest stored (and therefore redacted) prompts of a tenant to a model.

    Raises ConfigurationError if there are none, StoreUnavailable.
    """
    begin = now - timedelta(hours=hours)
    parameters = {
        "start": int(begin.timestamp()),
        "end": int(now.timestamp()) + 1,
        "tenant": tenant,
        "model": model,
        "row_limit": limit,
    }
    rows = store.query(query("recorded_prompts"), parameters)
    found = list(_recorded(text_of(row["prompt"]) for row in rows))
    if not found:
        raise ConfigurationError(
            f"tenant {tenant!r} has no content kept of {model!r} in the last {hours:g} hours; switch it on "
            "(`tollkeeper tenants set --content`), or use --set"
        )
    return found


def _recorded(texts: Iterator[str]) -> Iterator[Prompt]:
    number = 0
    for text in texts:
        try:
            said = json.loads(text)
        except ValueError:
            continue
        messages = said.get("messages") if isinstance(said, dict) else None
        if isinstance(messages, list) and messages:
            yield Prompt(number, messages, {})
            number += 1


def _decoded(path: Path, number: int, line: bytes) -> dict[str, Any]:
    if len(line) > _MOST_LINE_BYTES:
        raise ConfigurationError(f"{path}, line {number}: {len(line)} bytes; {_MOST_LINE_BYTES} is the most")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}, line {number}: not JSON") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}, line {number}: not an object")
    return found


def _prompt(where: str, number: int, line: dict[str, Any]) -> Prompt:
    body = line["body"] if isinstance(line.get("body"), dict) else line
    messages = body.get("messages")
    if isinstance(body.get("prompt"), str) and messages is None:
        messages = [{"role": "user", "content": body["prompt"]}]
    if not isinstance(messages, list) or not messages:
        raise ConfigurationError(f"{where}: neither messages nor a prompt")
    return Prompt(number, messages, {name: body[name] for name in _KEPT if name in body})
