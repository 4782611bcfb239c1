"""What tests of batches share: files of lines, and waiting for an end."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

CHAT: Any = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


def chat_line(custom_id: str, url: str = CHAT, method: str = "POST", **body: Any) -> dict[str, Any]:
    """A line that asks the scripted model."""
    messages = [{"role": "user", "content": "one two three"}]
    return {
        "custom_id": custom_id,
        "method": method,
        "url": url,
        "body": {"model": "scripted-1", "messages": messages, **body},
    }


def file_of(lines: Iterable[object]) -> tuple[str, bytes]:
    """A file as the SDK takes it."""
    written = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return "in.jsonl", b"\n".join(written) + b"\n"


async def create(client: Any, lines: Iterable[object], endpoint: str = CHAT, headers: Any = None, **more: Any) -> Any:
    """Upload lines and make a batch of them."""
    file = await client.files.create(file=file_of(lines), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", extra_headers=headers, **more
    )


async def ended(client: Any, batch: Any, within: float = 20.0, states: Iterable[str] = ENDED) -> Any:
    """Wait until a batch is in one of some states, and return it."""
    async with asyncio.timeout(within):
        while (found := await client.batches.retrieve(batch.id)).status not in states:
            await asyncio.sleep(0.02)
    return found


async def results(client: Any, file_id: str | None) -> dict[str, Any]:
    """The lines of an output or error file, by custom id."""
    if file_id is None:
        return {}
    lines = [json.loads(line) for line in (await client.files.content(file_id)).text.splitlines()]
    assert len({line["custom_id"] for line in lines}) == len(lines), "a line stands there twice"
    for line in lines:
        assert set(line) == {"id", "custom_id", "response", "error"} and line["id"].startswith("batch_req_")
    return {line["custom_id"]: line for line in lines}
