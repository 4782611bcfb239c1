"""Database operations of the gateway that processes a batch: leases, lines, outcomes, the end.

A batch is leased by one gateway at a time, which renews its lease. Every write for a batch checks the lease in the same
transaction.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Delete, Update, and_, bindparam, delete, func, insert, or_, select, update

from backends.objects.batches import BATCHES, LINES, batch_of
from backends.objects.database import ObjectsDatabase
from backends.objects.files import complete_file
from contracts.objects.batches import (
    LIVE_STATES,
    Batch,
    BatchEnd,
    BatchFault,
    BatchUsage,
    LeaseLost,
    LineOutcome,
    NewLine,
)
from contracts.objects.files import StoredFile

_LOOKED_AT: Final = 200  # number of batches from which the next is chosen
_READ_AT_ONCE_BYTES: Final = 4 << 20  # of results, each of which may have megabytes
_LIVE: Final = BATCHES.c.state.in_(LIVE_STATES)
# Built once, because they are executed for every line.
_KEEP_OUTCOME: Final = (
    update(LINES)
    .where(LINES.c.batch_id == bindparam("of_batch"), LINES.c.number == bindparam("of_line"), LINES.c.result.is_(None))
    .values(result=bindparam("new_result"), is_failed=bindparam("new_is_failed"), request=None)
)
_COUNTED: Final = ("completed", "failed", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
_COUNT: Final = (
    update(BATCHES)
    .where(BATCHES.c.id == bindparam("of_batch"), BATCHES.c.lease_owner == bindparam("of_owner"))
    .values({name: BATCHES.c[name] + bindparam(f"more_{name}") for name in _COUNTED})
)


class BatchWork:
    """One gateway's access to the batches that it has leased.

    `owner` is the gateway's name and data directory, "#", and an id of this process. Methods that write for a batch
    raise LeaseLost if another gateway has leased it by now; all raise ObjectsUnavailable if the database cannot be
    used.
    """

    def __init__(self, database: ObjectsDatabase, owner: str) -> None:
        self._database = database
        self._place = owner.rpartition("#")[0] + "#"
        self._me = owner

    async def take_over_former(self) -> None:
        """Expire the leases of earlier processes with the same name and directory, which no longer run."""
        former = BATCHES.c.lease_owner.startswith(self._place, autoescape=True)
        await self._write(update(BATCHES).where(_LIVE, former).values(lease_until_ns=0))

    async def claim(self, now_ns: int, until_ns: int, running: Mapping[str, str]) -> Batch | None:
        """Lease a batch that no gateway has leased: the oldest one of the tenant with the fewest running here.

        `running` maps the ids of the batches that run here to their tenants; these are not leased again, even if their
        leases have expired.
        """
        is_free = and_(_LIVE, or_(BATCHES.c.lease_until_ns <= now_ns, BATCHES.c.lease_owner == self._me))
        free = select(BATCHES.c.id, BATCHES.c.tenant).where(is_free, BATCHES.c.id.not_in(running))
        counts = Counter(running.values())

        def work(connection: Connection) -> Batch | None:
            found = connection.execute(free.order_by(BATCHES.c.id).limit(_LOOKED_AT)).all()
            for name, _ in sorted(found, key=lambda row: (counts[row.tenant], row.id)):
                mine = update(BATCHES).where(BATCHES.c.id == name, is_free)
                if connection.execute(mine.values(lease_owner=self._me, lease_until_ns=until_ns)).rowcount:
                    return batch_of(connection.execute(select(BATCHES).where(BATCHES.c.id == name)).one())
            return None

        return await self._database.run(work)

    async def renew(self, batch_ids: Collection[str], until_ns: int) -> None:
        """Extend the leases of these batches."""
        mine = update(BATCHES).where(BATCHES.c.id.in_(batch_ids), BATCHES.c.lease_owner == self._me)
        await self._write(mine.values(lease_until_ns=until_ns))

    async def held(self) -> dict[str, Batch]:
        """Return the batches that this gateway has leased, by id, in their current state."""
        mine = select(BATCHES).where(BATCHES.c.lease_owner == self._me, _LIVE)
        rows = await self._database.run(lambda connection: connection.execute(mine).all())
        return {row.id: batch_of(row) for row in rows}

    async def release(self, batch_id: str) -> None:
        """Release a batch for other gateways."""
        mine = update(BATCHES).where(BATCHES.c.id == batch_id, BATCHES.c.lease_owner == self._me)
        await self._write(mine.values(lease_until_ns=0, lease_owner=""))

    async def release_all(self) -> None:
        """Release all leased batches, so that other gateways may claim them."""
        mine = update(BATCHES).where(BATCHES.c.lease_owner == self._me)
        await self._write(mine.values(lease_until_ns=0, lease_owner=""))

    # before the first request

    async def forget_lines(self, batch_id: str) -> None:
        """Delete the lines of an interrupted parse of the input."""
        await self._guarded(batch_id, lambda connection: connection.execute(_lines_of(batch_id)))

    async def add_lines(self, batch_id: str, lines: Sequence[NewLine]) -> None:
        """Store lines of the input."""
        rows = [
            {"batch_id": batch_id, "number": line.number, "custom_id": line.custom_id, "request": line.request}
            for line in lines
        ]
        if rows:
            await self._guarded(batch_id, lambda connection: connection.execute(insert(LINES), rows))

    async def begin(self, batch_id: str, total: int, model: str, now_unix: int) -> None:
        """Start processing: store the number of lines and the model. A batch that was cancelled meanwhile stays
        cancelled.
        """

        def work(connection: Connection) -> None:
            this = update(BATCHES).where(BATCHES.c.id == batch_id)
            connection.execute(this.values(total=total, model=model, in_progress_unix=now_unix))
            connection.execute(this.where(BATCHES.c.state == "validating").values(state="in_progress"))

        await self._guarded(batch_id, work)

    # lines

    async def next_lines(self, batch_id: str, after: int, limit: int) -> list[NewLine]:
        """Return up to `limit` lines without an outcome, starting after number `after`."""
        waiting = select(LINES).where(LINES.c.batch_id == batch_id, LINES.c.number > after, LINES.c.result.is_(None))
        found = waiting.order_by(LINES.c.number).limit(limit)
        rows = await self._database.run(lambda connection: connection.execute(found).all())
        return [NewLine(row.number, row.custom_id, bytes(row.request)) for row in rows]

    async def finish(self, batch_id: str, outcomes: Sequence[LineOutcome]) -> None:
        """Store outcomes of lines. An outcome that a line already has is kept."""
        await self._database.run(partial(_keep_outcomes, batch_id=batch_id, owner=self._me, outcomes=outcomes))

    async def results(
        self, batch_id: str, after: int, limit: int, *, is_failed: bool, max_bytes: int = _READ_AT_ONCE_BYTES
    ) -> list[tuple[int, bytes]]:
        """Return up to `limit` results with their line numbers, starting after number `after`.

        Fewer are returned if they would exceed `max_bytes` together, but at least one if there is any.
        """

        def work(connection: Connection) -> list[tuple[int, bytes]]:
            kept = and_(LINES.c.batch_id == batch_id, LINES.c.number > after, LINES.c.is_failed == int(is_failed))
            sizes = select(LINES.c.number, func.length(LINES.c.result)).where(kept).order_by(LINES.c.number)
            last, size = after, 0
            for number, more in connection.execute(sizes.limit(limit)):
                size += more
                if last > after and size > max_bytes:
                    break
                last = number
            found = select(LINES.c.number, LINES.c.result).where(kept, LINES.c.number <= last)
            return [(row.number, bytes(row.result)) for row in connection.execute(found.order_by(LINES.c.number))]

        return await self._database.run(work)

    # the end

    async def decide(self, batch_id: str, end: BatchEnd, faults: Sequence[BatchFault], now_unix: int) -> None:
        """Record how a batch ends, before its files are written. A batch that is being cancelled keeps that state."""

        def work(connection: Connection) -> None:
            this = update(BATCHES).where(BATCHES.c.id == batch_id)
            written = msgspec.json.encode(list(faults)).decode()
            connection.execute(this.values(outcome=end, faults=written, finalizing_unix=now_unix))
            connection.execute(this.where(BATCHES.c.state != "cancelling").values(state="finalizing"))

        await self._guarded(batch_id, work)

    async def end(
        self, batch_id: str, end: BatchEnd, output: StoredFile | None, errors: StoredFile | None, now_unix: int
    ) -> None:
        """End a batch, make its files visible and delete its lines, in one transaction."""

        def work(connection: Connection) -> None:
            for file in (output, errors):
                if file is not None:
                    complete_file(connection, file.id, file.size_bytes)
            connection.execute(
                update(BATCHES)
                .where(BATCHES.c.id == batch_id)
                .values(
                    state=end,
                    ended_unix=now_unix,
                    output_file_id=None if output is None else output.id,
                    error_file_id=None if errors is None else errors.id,
                    lease_owner="",
                    lease_until_ns=0,
                )
            )
            connection.execute(_lines_of(batch_id))

        await self._guarded(batch_id, work)

    async def _write(self, statement: Update) -> None:
        await self._database.run(lambda connection: connection.execute(statement))

    async def _guarded(self, batch_id: str, work: Callable[[Connection], Any]) -> None:
        """Run a transaction for a leased batch. It writes to the batch's row first, so that other transactions wait."""
        mine = update(BATCHES).where(BATCHES.c.id == batch_id, BATCHES.c.lease_owner == self._me)

        def guarded(connection: Connection) -> None:
            if not connection.execute(mine.values(lease_owner=self._me)).rowcount:
                raise _lost(batch_id)
            work(connection)

        await self._database.run(guarded)


def _lost(batch_id: str) -> LeaseLost:
    return LeaseLost(f"the batch {batch_id!r} has been taken over by another gateway")


def _lines_of(batch_id: str) -> Delete:
    return delete(LINES).where(LINES.c.batch_id == batch_id)


def _keep_outcomes(connection: Connection, batch_id: str, owner: str, outcomes: Sequence[LineOutcome]) -> None:
    """Store and count outcomes. The count comes last, and rolls everything back if `owner` has lost the lease."""
    completed = failed = 0
    usage = BatchUsage()
    for outcome in outcomes:
        kept = {
            "of_batch": batch_id,
            "of_line": outcome.number,
            "new_result": outcome.result,
            "new_is_failed": int(outcome.is_failed),
        }
        if connection.execute(_KEEP_OUTCOME, kept).rowcount:
            completed += not outcome.is_failed
            failed += outcome.is_failed
            usage = usage.plus(outcome.usage)
    more = {
        "of_batch": batch_id,
        "of_owner": owner,
        "more_completed": completed,
        "more_failed": failed,
        "more_input_tokens": usage.input_tokens,
        "more_cached_tokens": usage.cached_tokens,
        "more_output_tokens": usage.output_tokens,
        "more_reasoning_tokens": usage.reasoning_tokens,
    }
    if not connection.execute(_COUNT, more).rowcount:
        raise _lost(batch_id)
