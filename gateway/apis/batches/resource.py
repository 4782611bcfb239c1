"""OpenAI's Batches API: create, list, retrieve, cancel. A batch is paid for by the key that creates it."""

import re
from collections.abc import Collection
from typing import Final

import msgspec

from contracts.access.endpoints import Endpoint
from contracts.access.owner import owner_of
from contracts.errors import InvalidRequest, NotFound, PermissionDenied
from contracts.objects.batches import WINDOW, WINDOW_SECONDS, Batch, Payer
from contracts.recording.ids import uuid7
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.apis.batches.lazy_batch_store import LazyBatchStore
from gateway.apis.batches.request import read_batch_request
from gateway.apis.batches.runner import BatchRunner
from gateway.apis.files.lazy_file_store import LazyFileStore
from gateway.apis.files.paging import page_of, read_page
from gateway.apis.files.resource import no_such_file
from gateway.apis.operations import Operation
from gateway.apis.reading import read_tags
from gateway.apis.rendering import OPENAI_ERRORS
from gateway.replies.reply import JSON
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange

_BATCHES: Final = "/v1/batches"
_ONE: Final = re.compile(r"/v1/batches/([A-Za-z0-9_-]{1,100})(/cancel)?")
_MAX_PAGE: Final = 100
_PAGE: Final = 20
_MAX_LIVE: Final = 100  # of one tenant
# Whose requests may stand in a batch, where they are served at all.
_BATCHED: Final = frozenset(
    ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages")
)


def batched_operations(operations: Collection[Operation]) -> dict[str, Operation]:
    """Return the operations allowed in a batch, by the path that its lines name."""
    return {path: operation for operation in operations for path in operation.paths if path in _BATCHED}


class BatchesResource:
    """Answers /v1/batches and the paths below it, and wakes the runner if there is work."""

    endpoint: Endpoint = "batches"
    errors = OPENAI_ERRORS

    def __init__(
        self,
        kept: LazyBatchStore,
        files: LazyFileStore,
        operations: dict[str, Operation],
        clock: Clock,
        runner: BatchRunner,
    ) -> None:
        self._kept = kept
        self._files = files
        self._operations = operations
        self._clock = clock
        self._runner = runner

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path supports; empty if the path does not belong to this resource."""
        if path == _BATCHES:
            return ("GET", "POST")
        found = _ONE.fullmatch(path)
        if found is None:
            return ()
        return ("POST",) if found.group(2) else ("GET",)

    async def answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        """Answer a request of an authenticated caller. Raises a TollkeeperError before anything was sent."""
        found = _ONE.fullmatch(exchange.path)
        if found is None and exchange.method == "POST":
            body = batch_object(await self._create(exchange, key, snapshot))
        elif found is None:
            body = await self._page(exchange, key)
        elif found.group(2):
            body = batch_object(await self.cancel(found.group(1), key))
        else:
            batch = await (await self._kept.store()).find(owner_of(key), found.group(1))
            body = batch_object(_found(batch, found.group(1)))
        exchange.send(200, JSON, msgspec.json.encode(body))

    async def _create(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> Batch:
        request = read_batch_request(exchange.header(b"content-type"), exchange.body, self._operations)
        self.check_payer(key, snapshot, request.endpoint)
        now_unix = self._clock.wall_ns() // 1_000_000_000
        file = await (await self._files.store()).find(owner_of(key), request.input_file_id, now_unix)
        if file is None:
            raise no_such_file(request.input_file_id, "input_file_id")
        if file.purpose != "batch":
            raise InvalidRequest(
                f"the file {file.id!r} has the purpose {file.purpose!r}; a batch reads one of the purpose 'batch'",
                param="input_file_id",
            )
        expiry = request.output_expires_after
        return await self.begin(
            key,
            request.endpoint,
            file.id,
            exchange.header(b"x-tollkeeper-tags"),
            metadata=request.metadata,
            expires_after_seconds=None if expiry is None else expiry.seconds,
        )

    def check_payer(self, key: KeyEntry, snapshot: Snapshot, endpoint: str) -> None:
        """Raise PermissionDenied if a key may not pay for a batch of an endpoint's requests."""
        if key.digest not in snapshot.keys:
            raise PermissionDenied(
                "a batch runs for up to a day, longer than a token of an identity provider is good: create it with an "
                "API key",
                code="key_required",
            )
        api = self._operations[endpoint].api
        if key.endpoints is not None and api not in key.endpoints:
            allowed = ", ".join(sorted(key.endpoints))
            raise PermissionDenied(f"this key may not use {api}; it may use {allowed}", param="endpoint")

    async def begin(
        self,
        key: KeyEntry,
        endpoint: str,
        file_id: str,
        tags: str,
        *,
        metadata: dict[str, str] | None = None,
        expires_after_seconds: int | None = None,
        prefix: str = "batch_",
    ) -> Batch:
        """Create a batch of a file's requests, and wake the runner. Raises InvalidRequest on invalid tags."""
        read_tags(tags)  # what is wrong with them is said now, and not once a line
        now_ns = self._clock.wall_ns()
        now_unix = now_ns // 1_000_000_000
        batch = Batch(
            id=f"{prefix}{uuid7(now_ns).hex}",
            owner=owner_of(key),
            payer=Payer(key.digest, key.identity.key_id),
            endpoint=endpoint,
            input_file_id=file_id,
            created_unix=now_unix,
            expires_unix=now_unix + WINDOW_SECONDS,
            metadata=metadata,
            tags=tags,
            output_expires_after_seconds=expires_after_seconds,
        )
        await (await self._kept.store()).create(batch, _MAX_LIVE, self._runner.lease())
        self._runner.wake()
        return batch

    async def _page(self, exchange: Exchange, key: KeyEntry) -> dict[str, object]:
        wish = read_page(exchange.query, most=_MAX_PAGE, default=_PAGE, has_order=False)
        store = await self._kept.store()
        found = await store.list(owner_of(key), limit=wish.limit + 1, after=wish.after)
        return page_of([batch_object(batch) for batch in found], wish.limit)

    async def cancel(self, batch_id: str, key: KeyEntry) -> Batch:
        """Cancel a batch. Raises NotFound, or InvalidRequest if it has ended."""
        store, now_unix = await self._kept.store(), self._clock.wall_ns() // 1_000_000_000
        batch = _found(await store.cancel(owner_of(key), batch_id, now_unix), batch_id)
        if not batch.is_live and batch.state != "cancelled":
            raise InvalidRequest(f"the batch {batch.id!r} has ended: it is {batch.state}", code="batch_ended")
        self._runner.wake()
        return batch


def _found(batch: Batch | None, batch_id: str) -> Batch:
    if batch is None:
        raise NotFound(
            f"there is no batch {batch_id!r}; GET /v1/batches lists yours", param="id", code="batch_not_found"
        )
    return batch


def batch_object(batch: Batch) -> dict[str, object]:
    """Return a batch as OpenAI's batch object."""
    usage = batch.usage
    ended = {batch.state: batch.ended_unix}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model or None,
        "errors": {"object": "list", "data": batch.faults} if batch.faults else None,
        "input_file_id": batch.input_file_id,
        "completion_window": WINDOW,
        "status": batch.state,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_unix,
        "in_progress_at": batch.in_progress_unix,
        "expires_at": batch.expires_unix,
        "finalizing_at": batch.finalizing_unix,
        "completed_at": ended.get("completed"),
        "failed_at": ended.get("failed"),
        "expired_at": ended.get("expired"),
        "cancelling_at": batch.cancelling_unix,
        "cancelled_at": ended.get("cancelled"),
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
        "metadata": batch.metadata,
    }
