"""Processing of leased batches: leases, lines, outcomes, the end.

A batch belongs to one gateway at a time, by a lease that it renews. Everything written for a batch is written only
while the lease is held, in the same transaction that looks.
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

_LOOKED_AT: Final = 200  # batches among which the next one is chosen
_READ_AT_ONCE_BYTES: Final = 4 << 20  # of results: one may have megabytes
_LIVE: Final = BATCHES.c.state.in_(LIVE_STATES)
# Built once: these two are executed for every line.
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
    """One gateway's hold on batches.

    `owner` is `place`, which names the gateway and its data directory, "#", and what tells this process from those
    before it in the same place. Methods that write for a batch raise LeaseLost if it is another gateway's by now;
    all raise ObjectsUnavailable if the database cannot be used.
    """

    def __init__(self, database: ObjectsDatabase, owner: str) -> None:
        self._database = database
        self._place = owner.rpartition("#")[0] + "#"
        self._me = owner

    async def take_over_former(self) -> None:
        """Let go of what a process before this one, in the same place, has left behind: it is there no more."""
        former = BATCHES.c.lease_owner.startswith(self._place, autoescape=True)
        await self._write(update(BATCHES).where(_LIVE, former).values(lease_until_ns=0))

    async def claim(self, now_ns: int, until_ns: int, running: Mapping[str, str]) -> Batch | None:
        """Reserve a batch that nobody holds: of the tenant that has the fewest running here, the oldest.

        `running` are the tenants of the batches that run here, by the batches' ids; these are not taken again, also
        where their leases have run out.
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
        """Hold what is held until a later moment."""
        mine = update(BATCHES).where(BATCHES.c.id.in_(batch_ids), BATCHES.c.lease_owner == self._me)
        await self._write(mine.values(lease_until_ns=until_ns))

    async def held(self) -> dict[str, Batch]:
        """Return the batches that are held, by id, as they are now."""
        mine = select(BATCHES).where(BATCHES.c.lease_owner == self._me, _LIVE)
        rows = await self._database.run(lambda connection: connection.execute(mine).all())
        return {row.id: batch_of(row) for row in rows}

    async def release(self, batch_id: str) -> None:
        """Leave a batch to the one that takes it next."""
        mine = update(BATCHES).where(BATCHES.c.id == batch_id, BATCHES.c.lease_owner == self._me)
        await self._write(mine.values(lease_until_ns=0, lease_owner=""))

    async def release_all(self) -> None:
        """Release the leases of all held batches, so that another gateway may claim them."""
        mine = update(BATCHES).where(BATCHES.c.lease_owner == self._me)
        await self._write(mine.values(lease_until_ns=0, lease_owner=""))

    # before the first request

    async def forget_lines(self, batch_id: str) -> None:
        """Delete lines that an interrupted parse of the input left."""
        await self._guarded(batch_id, lambda connection: connection.execute(_lines_of(batch_id)))

    async def add_lines(self, batch_id: str, lines: Sequence[NewLine]) -> None:
        """Keep lines of the input."""
        rows = [
            {"batch_id": batch_id, "number": line.number, "custom_id": line.custom_id, "request": line.request}
            for line in lines
        ]
        if rows:
            await self._guarded(batch_id, lambda connection: connection.execute(insert(LINES), rows))

    async def begin(self, batch_id: str, total: int, model: str, now_unix: int) -> None:
        """Let the requests begin. One that was cancelled meanwhile stays so."""

        def work(connection: Connection) -> None:
            this = update(BATCHES).where(BATCHES.c.id == batch_id)
            connection.execute(this.values(total=total, model=model, in_progress_unix=now_unix))
            connection.execute(this.where(BATCHES.c.state == "validating").values(state="in_progress"))

        await self._guarded(batch_id, work)

    # lines

    async def next_lines(self, batch_id: str, after: int, limit: int) -> list[NewLine]:
        """Return up to `limit` lines without an outcome, from behind number `after` on."""
        waiting = select(LINES).where(LINES.c.batch_id == batch_id, LINES.c.number > after, LINES.c.result.is_(None))
        found = waiting.order_by(LINES.c.number).limit(limit)
        rows = await self._database.run(lambda connection: connection.execute(found).all())
        return [NewLine(row.number, row.custom_id, bytes(row.request)) for row in rows]

    async def finish(self, batch_id: str, outcomes: Sequence[LineOutcome]) -> None:
        """Keep what became of lines. Of a line that has an outcome already, that one stays."""
        await self._database.run(partial(_keep_outcomes, batch_id=batch_id, owner=self._me, outcomes=outcomes))

    async def results(
        self, batch_id: str, after: int, limit: int, *, is_failed: bool, max_bytes: int = _READ_AT_ONCE_BYTES
    ) -> list[tuple[int, bytes]]:
        """Return up to `limit` results with their lines' numbers, from behind number `after` on.

        Those are fewer where they would have more than `max_bytes` together, and at least one where there is any.
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
        """Write down how a batch ends, before its files are written. One that is being cancelled shows as such."""

        def work(connection: Connection) -> None:
            this = update(BATCHES).where(BATCHES.c.id == batch_id)
            written = msgspec.json.encode(list(faults)).decode()
            connection.execute(this.values(outcome=end, faults=written, finalizing_unix=now_unix))
            connection.execute(this.where(BATCHES.c.state != "cancelling").values(state="finalizing"))

        await self._guarded(batch_id, work)

    async def end(
        self, batch_id: str, end: BatchEnd, output: StoredFile | None, errors: StoredFile | None, now_unix: int
    ) -> None:
        """End a batch, let its files be seen and drop its lines, all at once."""

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
        """Run a transaction for a batch that is ours. Writing to its row first makes everyone else wait for the end."""
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
    """Keep outcomes and count them. The count comes last, and undoes all where the batch is not the owner's."""
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
