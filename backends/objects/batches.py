"""Batches in the objects database: creating, finding and cancelling them.

How a gateway leases and processes them is in `batch_work.py`.
"""

from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Row,
    String,
    Table,
    Text,
    and_,
    func,
    insert,
    select,
    update,
)

from backends.objects.database import METADATA, ObjectsDatabase
from backends.objects.ownership import owned, wait_for_tenant
from contracts.access.owner import Owner
from contracts.errors import InvalidRequest
from contracts.objects.batches import LIVE_STATES, NO_LEASE, Batch, BatchFault, BatchUsage, Lease, Payer

BATCHES: Final = Table(
    "batches",
    METADATA,
    Column("id", String(64), primary_key=True),  # ascending by creation
    Column("tenant", String(63), nullable=False),
    Column("project", String(127), nullable=False),
    Column("state", String(20), nullable=False),
    Column("endpoint", String(100), nullable=False),
    Column("input_file_id", String(100), nullable=False),
    Column("payer_digest", LargeBinary, nullable=False),
    Column("payer_key_id", String(200), nullable=False),
    Column("metadata", Text),  # JSON
    Column("tags", Text, nullable=False),
    Column("output_expires_after_seconds", Integer),
    Column("created_unix", BigInteger, nullable=False),
    Column("expires_unix", BigInteger, nullable=False),
    Column("in_progress_unix", BigInteger),
    Column("finalizing_unix", BigInteger),
    Column("ended_unix", BigInteger),
    Column("cancelling_unix", BigInteger),
    Column("total", Integer, nullable=False, default=0),
    Column("completed", Integer, nullable=False, default=0),
    Column("failed", Integer, nullable=False, default=0),
    Column("input_tokens", BigInteger, nullable=False, default=0),
    Column("cached_tokens", BigInteger, nullable=False, default=0),
    Column("output_tokens", BigInteger, nullable=False, default=0),
    Column("reasoning_tokens", BigInteger, nullable=False, default=0),
    Column("model", String(200), nullable=False, default=""),
    Column("faults", Text, nullable=False, default="[]"),  # JSON
    Column("output_file_id", String(64)),
    Column("error_file_id", String(64)),
    Column("outcome", String(20)),
    Column("lease_owner", String(300), nullable=False, default=""),
    Column("lease_until_ns", BigInteger, nullable=False, default=0),
    Index("ix_batches_owner", "tenant", "project", "id"),
    Index("ix_batches_state", "state", "id"),
)
LINES: Final = Table(
    "batch_lines",
    METADATA,
    Column("batch_id", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("custom_id", String(512), nullable=False),
    Column("request", LargeBinary),  # the body; NULL once there is a result
    Column("result", LargeBinary),  # the line for the output or the error file
    Column("is_failed", Integer),
)

_faults: Final = msgspec.json.Decoder(tuple[BatchFault, ...])
_metadata: Final = msgspec.json.Decoder(dict[str, str])


class BatchStore:
    """Stores batches. Every method raises ObjectsUnavailable if the database cannot be used."""

    def __init__(self, database: ObjectsDatabase) -> None:
        self._database = database

    async def create(self, batch: Batch, max_live: int, lease: Lease = NO_LEASE) -> None:
        """Store a new batch. Raises InvalidRequest if its tenant has `max_live` unfinished batches already.

        `lease` lets the gateway that creates it also start it: others may not know its key or model yet.
        """
        await self._database.run(lambda connection: _create(connection, batch, max_live, lease))

    async def find(self, owner: Owner, batch_id: str) -> Batch | None:
        """Return one of an owner's batches; `None` if it has none with that id."""
        wanted = select(BATCHES).where(BATCHES.c.id == batch_id, owned(BATCHES, owner))
        row = await self._database.run(lambda connection: connection.execute(wanted).first())
        return None if row is None else batch_of(row)

    async def list(self, owner: Owner, *, limit: int, after: str = "") -> list[Batch]:
        """Return up to `limit` of an owner's batches, newest first, starting after the batch `after`."""
        found = select(BATCHES).where(owned(BATCHES, owner)).order_by(BATCHES.c.id.desc()).limit(limit)
        if after:
            found = found.where(BATCHES.c.id < after)
        return [batch_of(row) for row in await self._database.run(lambda connection: connection.execute(found).all())]

    async def cancel(self, owner: Owner, batch_id: str, now_unix: int) -> Batch | None:
        """Cancel a running batch, and return its new state; `None` if the owner has none with that id.

        A batch that has ended or is finalizing is returned unchanged.
        """

        def work(connection: Connection) -> Batch | None:
            may_end = and_(
                BATCHES.c.id == batch_id, owned(BATCHES, owner), BATCHES.c.state.in_(("validating", "in_progress"))
            )
            connection.execute(update(BATCHES).where(may_end).values(state="cancelling", cancelling_unix=now_unix))
            row = connection.execute(select(BATCHES).where(BATCHES.c.id == batch_id, owned(BATCHES, owner))).first()
            return None if row is None else batch_of(row)

        return await self._database.run(work)


def _create(connection: Connection, batch: Batch, max_live: int, lease: Lease) -> None:
    wait_for_tenant(connection, "batches", batch.owner.tenant)
    connection.execute(
        insert(BATCHES).values(
            id=batch.id,
            tenant=batch.owner.tenant,
            project=batch.owner.project,
            state=batch.state,
            endpoint=batch.endpoint,
            input_file_id=batch.input_file_id,
            payer_digest=batch.payer.digest,
            payer_key_id=batch.payer.key_id,
            metadata=None if batch.metadata is None else msgspec.json.encode(batch.metadata).decode(),
            tags=batch.tags,
            output_expires_after_seconds=batch.output_expires_after_seconds,
            created_unix=batch.created_unix,
            expires_unix=batch.expires_unix,
            lease_owner=lease.owner,
            lease_until_ns=lease.until_ns,
        )
    )
    live = select(func.count()).where(BATCHES.c.tenant == batch.owner.tenant, BATCHES.c.state.in_(LIVE_STATES))
    count = connection.execute(live).scalar_one()
    if count > max_live:
        raise InvalidRequest(
            f"the tenant {batch.owner.tenant!r} has {count - 1} batches that have not ended, and at most {max_live} "
            "are taken; wait for some to end, or cancel some",
            code="too_many_batches",
        )


def batch_of(row: Row[Any]) -> Batch:
    """Return the batch of a row."""
    return Batch(
        id=row.id,
        owner=Owner(row.tenant, row.project),
        payer=Payer(bytes(row.payer_digest), row.payer_key_id),
        endpoint=row.endpoint,
        input_file_id=row.input_file_id,
        created_unix=row.created_unix,
        expires_unix=row.expires_unix,
        state=row.state,
        metadata=None if row.metadata is None else _metadata.decode(row.metadata),
        tags=row.tags,
        output_expires_after_seconds=row.output_expires_after_seconds,
        in_progress_unix=row.in_progress_unix,
        finalizing_unix=row.finalizing_unix,
        ended_unix=row.ended_unix,
        cancelling_unix=row.cancelling_unix,
        total=row.total,
        completed=row.completed,
        failed=row.failed,
        model=row.model,
        faults=_faults.decode(row.faults),
        usage=BatchUsage(row.input_tokens, row.cached_tokens, row.output_tokens, row.reasoning_tokens),
        output_file_id=row.output_file_id,
        error_file_id=row.error_file_id,
        outcome=row.outcome,
    )
