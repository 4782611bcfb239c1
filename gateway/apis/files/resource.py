"""OpenAI's Files API: upload, list, read, delete. A file belongs to the project of the key that uploaded it, or else to
its tenant.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

import msgspec

from contracts.access.endpoints import Endpoint
from contracts.access.owner import Owner, owner_of
from contracts.errors import NotFound, TollkeeperError
from contracts.objects.files import FileBounds, StoredFile
from contracts.recording.ids import uuid7
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.apis.files.lazy_file_store import LazyFileStore
from gateway.apis.files.paging import page_of, read_page
from gateway.apis.files.upload import read_upload
from gateway.apis.rendering import OPENAI_ERRORS
from gateway.replies.reply import JSON
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange

_log = logging.getLogger(__name__)

_FILES: Final = "/v1/files"
_ONE: Final = re.compile(r"/v1/files/([A-Za-z0-9_-]{1,100})(/content)?")
_CONTENT_TYPE: Final = b"application/octet-stream"
_MAX_PAGE: Final = 10_000


class FilesResource:
    """Answers /v1/files and the paths below it. `on_use` is called whenever an application stores a file."""

    endpoint: Endpoint = "files"
    errors = OPENAI_ERRORS

    def __init__(self, kept: LazyFileStore, bounds: FileBounds, clock: Clock, on_use: Callable[[], None]) -> None:
        self._kept = kept
        self._bounds = bounds
        self._clock = clock
        self._on_use = on_use

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path supports; empty if the path does not belong to this resource."""
        if path == _FILES:
            return ("GET", "POST")
        found = _ONE.fullmatch(path)
        if found is None:
            return ()
        return ("GET",) if found.group(2) else ("GET", "DELETE")

    async def answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        """Answer a request of an authenticated caller. Raises a TollkeeperError before anything was sent."""
        owner = owner_of(key)
        found = _ONE.fullmatch(exchange.path)
        if found is None and exchange.method == "POST":
            _send(exchange, await self._upload(exchange, owner))
        elif found is None:
            exchange.send(200, JSON, await self._page(exchange, owner))
        elif exchange.method == "DELETE":
            _send(exchange, await self._delete(owner, found.group(1)))
        elif found.group(2):
            await self._send_content(exchange, await self._find(owner, found.group(1)))
        else:
            _send(exchange, file_object(await self._find(owner, found.group(1))))

    @property
    def _now_unix(self) -> int:
        return self._clock.wall_ns() // 1_000_000_000

    async def _upload(self, exchange: Exchange, owner: Owner) -> dict[str, object]:
        upload = await asyncio.to_thread(read_upload, exchange.header(b"content-type"), exchange.body)
        now_ns = self._clock.wall_ns()
        created_unix = now_ns // 1_000_000_000
        file = StoredFile(
            id=new_file_id(now_ns),
            owner=owner,
            filename=upload.filename,
            purpose="batch",
            size_bytes=upload.size_bytes,
            created_unix=created_unix,
            expires_unix=created_unix + upload.expires_after_seconds,
        )
        await (await self._kept.store()).create(file, upload.pieces, self._bounds)
        self._on_use()
        return file_object(file)

    async def _page(self, exchange: Exchange, owner: Owner) -> bytes:
        wish = read_page(exchange.query, most=_MAX_PAGE, default=_MAX_PAGE, filters=("purpose",))
        found = await (await self._kept.store()).list(
            owner,
            self._now_unix,
            limit=wish.limit + 1,
            after=wish.after,
            ascending=wish.ascending,
            purpose=wish.filter("purpose"),
        )
        return await asyncio.to_thread(_rendered_page, found, wish.limit)  # there may be thousands

    async def _find(self, owner: Owner, file_id: str) -> StoredFile:
        file = await (await self._kept.store()).find(owner, file_id, self._now_unix)
        if file is None:
            raise no_such_file(file_id)
        return file

    async def _delete(self, owner: Owner, file_id: str) -> dict[str, object]:
        if not await (await self._kept.store()).delete(owner, file_id, self._now_unix):
            raise no_such_file(file_id)
        return {"id": file_id, "object": "file", "deleted": True}

    async def _send_content(self, exchange: Exchange, file: StoredFile) -> None:
        """Send a file piece by piece, as fast as the client reads. One that cannot be read to its end breaks off."""
        store = await self._kept.store()
        piece = await store.piece(file.id, 0)
        if piece is None:
            raise no_such_file(file.id)  # deleted meanwhile
        if len(piece) == file.size_bytes:
            exchange.send(200, _CONTENT_TYPE, piece)
            return
        exchange.start(200, _CONTENT_TYPE)
        if exchange.method == "HEAD":
            exchange.finish()
            return
        sent, number = 0, 0
        try:
            while piece is not None:
                exchange.write(piece)
                await exchange.drained()
                sent, number = sent + len(piece), number + 1
                piece = await store.piece(file.id, number) if sent < file.size_bytes else None
        except TollkeeperError:
            _log.exception("a file could not be sent to its end", extra={"file": file.id})
        if sent == file.size_bytes:
            exchange.end()
        else:
            exchange.close_after()  # without the last chunk, so that nobody takes it for the whole
            exchange.finish()


def new_file_id(now_ns: int) -> str:
    """Create a file's id. Ids sort by creation time."""
    return f"file-{uuid7(now_ns).hex}"


def no_such_file(file_id: str, param: str = "id") -> NotFound:
    """Return the error for a file that does not exist, or belongs to another owner."""
    return NotFound(
        f"there is no file {file_id[:100]!r}; GET /v1/files lists yours", param=param, code="file_not_found"
    )


def file_object(file: StoredFile) -> dict[str, object]:
    """Return a file as OpenAI's file object."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": file.created_unix,
        "expires_at": file.expires_unix,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def _rendered_page(found: list[StoredFile], limit: int) -> bytes:
    return msgspec.json.encode(page_of([file_object(file) for file in found], limit))


def _send(exchange: Exchange, body: dict[str, object]) -> None:
    exchange.send(200, JSON, msgspec.json.encode(body))
