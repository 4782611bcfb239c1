"""Files in the objects database: a row each, with the content in pieces of 1 MiB.

A file is visible once it is complete. Expired files, and incomplete ones of processes that ended, are deleted later.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Row,
    String,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from backends.objects.batches import BATCHES
from backends.objects.database import METADATA, ObjectsDatabase
from backends.objects.ownership import owned, wait_for_tenant
from contracts.access.owner import Owner
from contracts.errors import InvalidRequest, ObjectsUnavailable
from contracts.objects.files import FileBounds, StoredFile

_PIECES_A_TRANSACTION: Final = 4
_ABANDONED_SECONDS: Final = 3600  # longer than any upload or output takes to write
_SWEPT_AT_ONCE: Final = 20

_files: Final = Table(
    "files",
    METADATA,
    Column("id", String(64), primary_key=True),  # ascending by creation
    Column("tenant", String(63), nullable=False),
    Column("project", String(127), nullable=False),
    Column("filename", String(255), nullable=False),
    Column("purpose", String(20), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_unix", BigInteger, nullable=False),
    Column("expires_unix", BigInteger),
    Column("is_complete", Boolean, nullable=False),
    Index("ix_files_owner", "tenant", "project", "id"),
    Index("ix_files_expires", "expires_unix"),
)
_pieces: Final = Table(
    "file_pieces",
    METADATA,
    Column("file_id", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)


class FileStore:
    """Stores files. Every method raises ObjectsUnavailable if the database cannot be used."""

    def __init__(self, database: ObjectsDatabase) -> None:
        self._database = database

    async def create(self, file: StoredFile, pieces: Sequence[bytes], bounds: FileBounds) -> None:
        """Store a whole file. Raises InvalidRequest if its tenant has reached a limit."""
        await self._database.run(lambda connection: _begin_within(connection, file, bounds))
        for first in range(0, len(pieces), _PIECES_A_TRANSACTION):
            await self.append(file.id, first, pieces[first : first + _PIECES_A_TRANSACTION])
        await self._database.run(lambda connection: complete_file(connection, file.id, file.size_bytes))

    async def begin(self, file: StoredFile) -> None:
        """Start a file of results that is written piece by piece. Limits do not apply to it."""
        await self._database.run(lambda connection: _insert(connection, file))

    async def append(self, file_id: str, first: int, pieces: Sequence[bytes]) -> None:
        """Add pieces from number `first` on. Each has PIECE_BYTES, except the file's last."""
        rows = [{"file_id": file_id, "number": first + place, "content": piece} for place, piece in enumerate(pieces)]
        if rows:
            await self._database.run(lambda connection: connection.execute(insert(_pieces), rows))

    async def find(self, owner: Owner, file_id: str, now_unix: int) -> StoredFile | None:
        """Return one of an owner's files; `None` if it has none with that id."""
        wanted = select(_files).where(_files.c.id == file_id, *_visible(owner, now_unix))
        row = await self._database.run(lambda connection: connection.execute(wanted).first())
        return None if row is None else _file(row)

    async def list(
        self, owner: Owner, now_unix: int, *, limit: int, after: str = "", ascending: bool = False, purpose: str = ""
    ) -> list[StoredFile]:
        """Return up to `limit` of an owner's files in order of creation, starting after the file `after`."""
        found = select(_files).where(*_visible(owner, now_unix)).limit(limit)
        found = found.order_by(_files.c.id if ascending else _files.c.id.desc())
        if after:
            found = found.where(_files.c.id > after if ascending else _files.c.id < after)
        if purpose:
            found = found.where(_files.c.purpose == purpose)
        # Converted in the database's thread, because there may be thousands.
        return await self._database.run(lambda connection: [_file(row) for row in connection.execute(found)])

    async def piece(self, file_id: str, number: int) -> bytes | None:
        """Return a piece of a file's content; `None` after the last one."""
        wanted = select(_pieces.c.content).where(_pieces.c.file_id == file_id, _pieces.c.number == number)
        found: bytes | None = await self._database.run(lambda connection: connection.execute(wanted).scalar())
        return found

    async def delete(self, owner: Owner, file_id: str, now_unix: int) -> bool:
        """Delete one of an owner's files; return whether it existed."""

        def work(connection: Connection) -> bool:
            gone = connection.execute(delete(_files).where(_files.c.id == file_id, *_visible(owner, now_unix)))
            if gone.rowcount:
                connection.execute(delete(_pieces).where(_pieces.c.file_id == file_id))
            return bool(gone.rowcount)

        return await self._database.run(work)

    async def sweep(self, now_unix: int) -> int:
        """Delete up to 20 files that have expired or were never completed; return how many."""
        abandoned = and_(_files.c.is_complete.is_(False), _files.c.created_unix <= now_unix - _ABANDONED_SECONDS)
        wanted = select(_files.c.id).where(or_(_files.c.expires_unix <= now_unix, abandoned)).limit(_SWEPT_AT_ONCE)
        names = await self._database.run(lambda connection: connection.execute(wanted).scalars().all())
        for name in names:
            await self._database.run(partial(delete_file, file_id=name))
        return len(names)


def complete_file(connection: Connection, file_id: str, size_bytes: int) -> None:
    """Make a file visible, within a transaction. Raises ObjectsUnavailable if it was deleted as abandoned."""
    this = update(_files).where(_files.c.id == file_id)
    if not connection.execute(this.values(is_complete=True, size_bytes=size_bytes)).rowcount:
        raise ObjectsUnavailable(
            f"the file {file_id!r} took more than {_ABANDONED_SECONDS} seconds to be written and was swept up; the "
            "database of files is too slow"
        )


def delete_file(connection: Connection, file_id: str) -> None:
    """Delete a file with its content, within a transaction."""
    connection.execute(delete(_files).where(_files.c.id == file_id))
    connection.execute(delete(_pieces).where(_pieces.c.file_id == file_id))


def _insert(connection: Connection, file: StoredFile) -> None:
    connection.execute(
        insert(_files).values(
            id=file.id,
            tenant=file.owner.tenant,
            project=file.owner.project,
            filename=file.filename,
            purpose=file.purpose,
            size_bytes=file.size_bytes,
            created_unix=file.created_unix,
            expires_unix=file.expires_unix,
            is_complete=False,
        )
    )


def _begin_within(connection: Connection, file: StoredFile, bounds: FileBounds) -> None:
    """Start a file if its tenant's limits allow it, including files that others start at the same time."""
    wait_for_tenant(connection, "files", file.owner.tenant)
    _insert(connection, file)
    held = select(func.count(), func.sum(_files.c.size_bytes)).where(_files.c.tenant == file.owner.tenant)
    count, size = connection.execute(held).one()
    if count > bounds.max_count:
        raise InvalidRequest(
            f"the tenant {file.owner.tenant!r} keeps {count - 1} files, and at most {bounds.max_count} are kept; "
            "delete some",
            code="too_many_files",
        )
    if size > bounds.max_bytes:
        raise InvalidRequest(
            f"the tenant {file.owner.tenant!r} keeps {size - file.size_bytes} bytes in files, and at most "
            f"{bounds.max_bytes} are kept; this file has {file.size_bytes}: delete others",
            param="file",
            code="file_storage_full",
        )


def _visible(owner: Owner, now_unix: int) -> tuple[ColumnElement[bool], ...]:
    of_earlier = exists().where(
        BATCHES.c.created_unix < owner.since_ns // 1_000_000_000,
        or_(BATCHES.c.output_file_id == _files.c.id, BATCHES.c.error_file_id == _files.c.id),
    )
    return (
        owned(_files, owner),
        *((~of_earlier,) if owner.since_ns else ()),  # results of an earlier owner with the same id
        _files.c.is_complete.is_(True),
        or_(_files.c.expires_unix.is_(None), _files.c.expires_unix > now_unix),
    )


def _file(row: Row[Any]) -> StoredFile:
    return StoredFile(
        id=row.id,
        owner=Owner(row.tenant, row.project),
        filename=row.filename,
        purpose=row.purpose,
        size_bytes=row.size_bytes,
        created_unix=row.created_unix,
        expires_unix=row.expires_unix,
    )
