"""Anthropic's Message Batches API. The batches are the same as OpenAI's, but requests are in the body, and results are
streamed as lines.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from contracts.access.endpoints import Endpoint
from contracts.access.owner import owner_of
from contracts.errors import InvalidRequest, NotFound
from contracts.objects.batches import MAX_LINES, Batch
from contracts.objects.files import PIECE_BYTES, FileBounds, StoredFile
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.apis.batches.input_lines import InputReader
from gateway.apis.batches.lazy_batch_store import LazyBatchStore
from gateway.apis.batches.resource import BatchesResource
from gateway.apis.files.lazy_file_store import LazyFileStore
from gateway.apis.files.resource import new_file_id
from gateway.apis.files.upload import DEFAULT_EXPIRY_SECONDS
from gateway.apis.operations import Operation
from gateway.apis.reading import read_body
from gateway.replies.reply import JSON
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange

SERVED: Final = (
    "GET and POST /v1/messages/batches",
    "GET /v1/messages/batches/{id}",
    "GET /v1/messages/batches/{id}/results",
    "POST /v1/messages/batches/{id}/cancel",
)
_ENDPOINT: Final = "/v1/messages"
_BATCHES: Final = "/v1/messages/batches"
_ONE: Final = re.compile(r"/v1/messages/batches/([A-Za-z0-9_-]{1,100})(?:/(cancel|results))?")
_JSONL: Final = b"application/x-jsonl"
_CUSTOM_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LINE_BREAKS: Final = bytes.maketrans(b"\r\n", b"  ")  # between values alone: within a string they are escaped
_DEFAULT_PAGE: Final = 20
_MAX_PAGE: Final = 1000
_MOST_COUNTED: Final = 1000  # batches whose counts are kept
_NEVER_RAN: Final = {"batch_cancelled": "canceled", "batch_expired": "expired"}
_encode: Final = msgspec.json.Encoder().encode


class _Asked(msgspec.Struct, frozen=True):
    custom_id: str
    params: msgspec.Raw


class _NewBatch(msgspec.Struct, frozen=True):
    requests: list[_Asked]


class _Response(msgspec.Struct, frozen=True):
    status_code: int
    body: msgspec.Raw


class _Error(msgspec.Struct, frozen=True):
    code: str
    message: str


class _Result(msgspec.Struct, frozen=True):
    custom_id: str
    response: _Response | None = None
    error: _Error | None = None


_new: Final = msgspec.json.Decoder(_NewBatch)
_results: Final = msgspec.json.Decoder(_Result)


class MessageBatches:
    """Answers /v1/messages/batches and the paths below it. Creates batches of /v1/messages by means of `batches`."""

    endpoint: Endpoint = "batches"

    def __init__(
        self,
        batches: BatchesResource,
        kept: LazyBatchStore,
        files: LazyFileStore,
        bounds: FileBounds,
        messages: Operation,
        clock: Clock,
    ) -> None:
        self._batches = batches
        self._kept = kept
        self._files = files
        self._bounds = bounds
        self._clock = clock
        # Of batches that ended early: how many requests never ran. Their files are read once, as they never change.
        self._unrun: dict[str, Counter[str]] = {}
        self.errors = messages.errors

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path supports; empty if the path does not belong to this resource."""
        if path == _BATCHES:
            return ("GET", "POST")
        found = _ONE.fullmatch(path)
        if found is None:
            return ()
        return ("POST",) if found.group(2) == "cancel" else ("GET",)

    async def answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        """Answer a request of an authenticated caller. Raises a TollkeeperError before anything was sent."""
        found = _ONE.fullmatch(exchange.path)
        if found is None:
            create = exchange.method == "POST"
            body = await (self._create(exchange, key, snapshot) if create else self._page(exchange, key))
        elif found.group(2) == "results":
            await self._send_results(exchange, await self._find(key, found.group(1)))
            return
        elif found.group(2) == "cancel":
            await self._find(key, found.group(1))
            body = await self._shown(await self._batches.cancel(found.group(1), key))
        else:
            body = await self._shown(await self._find(key, found.group(1)))
        exchange.send(200, JSON, _encode(body), ((b"request-id", exchange.request_id),))

    async def _create(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> dict[str, Any]:
        asked = read_body(_new, exchange.header(b"content-type"), exchange.body)
        content = await asyncio.to_thread(_input_of, asked.requests, key, snapshot)
        now_ns = self._clock.wall_ns()
        created_unix = now_ns // 1_000_000_000
        file = StoredFile(
            id=new_file_id(now_ns),
            owner=owner_of(key),
            filename="requests.jsonl",
            purpose="batch",
            size_bytes=len(content),
            created_unix=created_unix,
            expires_unix=created_unix + DEFAULT_EXPIRY_SECONDS,
        )
        self._batches.check_payer(key, snapshot, _ENDPOINT)
        pieces = [content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES)]
        await (await self._files.store()).create(file, pieces, self._bounds)
        tags = exchange.header(b"x-tollkeeper-tags")
        batch = await self._batches.begin(key, _ENDPOINT, file.id, tags, prefix="msgbatch_")
        return await self._shown(batch)

    async def _page(self, exchange: Exchange, key: KeyEntry) -> dict[str, Any]:
        asked = parse_qs(exchange.query, max_num_fields=20)
        if "before_id" in asked:
            raise InvalidRequest("before_id is not offered; page with after_id", param="before_id")
        limit, after = _limit(asked.get("limit", [""])[-1]), asked.get("after_id", [""])[-1]
        store, found = await self._kept.store(), list[Batch]()
        while len(found) <= limit:
            page = await store.list(owner_of(key), limit=_MAX_PAGE, after=after)
            found += [batch for batch in page if batch.endpoint == _ENDPOINT]
            if len(page) < _MAX_PAGE:
                break
            after = page[-1].id
        shown = [await self._shown(batch) for batch in found[:limit]]
        ends = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
        return {"data": shown, "has_more": len(found) > limit, "first_id": ends[0], "last_id": ends[1]}

    async def _find(self, key: KeyEntry, batch_id: str) -> Batch:
        batch = await (await self._kept.store()).find(owner_of(key), batch_id)
        if batch is None or batch.endpoint != _ENDPOINT:
            raise NotFound(
                f"there is no message batch {batch_id!r}; GET {_BATCHES} lists yours",
                param="id",
                code="batch_not_found",
            )
        return batch

    async def _shown(self, batch: Batch) -> dict[str, Any]:
        """Return a batch as Anthropic's message batch object."""
        counts = {"processing": batch.waiting, "succeeded": batch.completed, "errored": batch.failed}
        counts |= {"canceled": 0, "expired": 0}
        if not batch.is_live and batch.state in ("cancelled", "expired"):
            for kind, count in (await self._unrun_of(batch)).items():
                counts["errored"] -= count
                counts[kind] += count
        is_canceling = batch.state == "cancelling"
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "canceling" if is_canceling else "in_progress" if batch.is_live else "ended",
            "request_counts": counts,
            "created_at": _moment(batch.created_unix),
            "expires_at": _moment(batch.expires_unix),
            "ended_at": _moment(batch.ended_unix),
            "cancel_initiated_at": _moment(batch.cancelling_unix),
            "archived_at": None,
            "results_url": None if batch.is_live else f"{_BATCHES}/{batch.id}/results",
        }

    async def _unrun_of(self, batch: Batch) -> Counter[str]:
        """Count the requests of an ended batch that never ran, by why."""
        known = self._unrun.get(batch.id)
        if known is None:
            known = Counter[str]()
            async for result in self._lines(batch, batch.error_file_id):
                known[_kind_of(result)] += 1
            del known["errored"]
            if len(self._unrun) >= _MOST_COUNTED:
                self._unrun.clear()
            self._unrun[batch.id] = known
        return known

    async def _send_results(self, exchange: Exchange, batch: Batch) -> None:
        """Send a line for each request, as fast as the client reads."""
        if batch.is_live:
            raise InvalidRequest(f"the batch {batch.id!r} has not ended: its results come then", code="batch_not_ended")
        exchange.start(200, _JSONL)
        for file_id in (batch.output_file_id, batch.error_file_id):
            async for result in self._lines(batch, file_id):
                exchange.write(_encode(_shown_result(result)) + b"\n")
                await exchange.drained()
        exchange.end()

    async def _lines(self, batch: Batch, file_id: str | None) -> AsyncIterator[_Result]:
        if file_id is None:
            return
        store, rest, number = await self._files.store(), b"", 0
        while (piece := await store.piece(file_id, number)) is not None:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line:
                    yield _results.decode(line)
            number += 1


def _input_of(asked: list[_Asked], key: KeyEntry, snapshot: Snapshot) -> bytes:
    """Return the requests as a batch's input file. Raise InvalidRequest on the first invalid one."""
    if not 1 <= len(asked) <= MAX_LINES:
        raise InvalidRequest(f"requests has {len(asked)} entries; give 1 to {MAX_LINES}", param="requests")
    lines: list[bytes] = []
    for place, one in enumerate(asked):
        if _CUSTOM_ID.fullmatch(one.custom_id) is None:
            raise InvalidRequest(
                f"requests[{place}].custom_id must be 1 to 64 of letters, digits, _ and -",
                param=f"requests[{place}].custom_id",
            )
        body = msgspec.Raw(bytes(one.params).translate(_LINE_BREAKS))
        lines.append(_encode({"custom_id": one.custom_id, "method": "POST", "url": _ENDPOINT, "body": body}))
    reader = InputReader(_ENDPOINT, lambda name: snapshot.serves(name, key.models))
    content = b"\n".join(lines)
    reader.feed(content)
    reader.end()
    if reader.faults:
        fault = reader.faults[0]
        place = (fault.line or 1) - 1
        raise InvalidRequest(f"requests[{place}]: {fault.message}", param=f"requests[{place}]", code=fault.code)
    return content


def _limit(text: str) -> int:
    if not text:
        return _DEFAULT_PAGE
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and 1 <= int(text) <= _MAX_PAGE):
        raise InvalidRequest(f"limit is {text[:20]!r}; it is a whole number from 1 to {_MAX_PAGE}", param="limit")
    return int(text)


def _kind_of(result: _Result) -> str:
    if result.response is not None:
        return "succeeded" if result.response.status_code == 200 else "errored"
    return "errored" if result.error is None else _NEVER_RAN.get(result.error.code, "errored")


def _shown_result(result: _Result) -> dict[str, Any]:
    kind = _kind_of(result)
    shown: dict[str, Any] = {"type": kind}
    if kind == "succeeded" and result.response is not None:
        shown["message"] = result.response.body
    elif kind == "errored" and result.response is not None:
        shown["error"] = result.response.body
    elif kind == "errored":
        message = "the request was not answered" if result.error is None else result.error.message
        shown["error"] = {"type": "error", "error": {"type": "api_error", "message": message}}
    return {"custom_id": result.custom_id, "result": shown}


def _moment(unix: int | None) -> str | None:
    return None if unix is None else f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%dT%H:%M:%SZ}"
