"""Responses that applications store at the gateway, each with its input and the id of the response that it
continues.
"""

from sqlalchemy import (
    CTE,
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Row,
    String,
    Table,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy import delete as delete_from
from sqlalchemy.sql.elements import ColumnElement

from backends.objects.database import METADATA, ObjectsDatabase
from backends.objects.ownership import owned
from contracts.access.owner import Owner
from contracts.errors import InvalidRequest
from contracts.objects.responses import DEFAULT_MAX_BYTES, MAX_HISTORY_RESPONSES, StoredResponse

_responses = Table(
    "responses",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("tenant", String, nullable=False),
    Column("project", String, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger, nullable=False),
    Column("previous_id", String(40)),
    Column("size_bytes", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("items", LargeBinary, nullable=False),
    Index("responses_expires_ns", "expires_ns"),
    Index("responses_tenant_size_bytes", "tenant", "size_bytes"),
)
_STORED = ("id", "tenant", "project", "created_ns", "expires_ns", "previous_id", "body", "items")


class ResponseStore:
    """Stores responses until they expire. Expired ones are invisible even before they are deleted."""

    def __init__(self, database: ObjectsDatabase, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """`max_bytes` is the limit per tenant. Gateways that write at the same time may exceed it by one
        response each.
        """
        self._database = database
        self._max_bytes = max_bytes

    async def add(self, response: StoredResponse) -> None:
        """Store a response, and extend the expiry of those that it continues.

        Raises ObjectsUnavailable, or InvalidRequest if the tenant's limit is reached.
        """
        await self._database.run(lambda connection: _add(connection, response, self._max_bytes))

    async def find(self, identifier: str, owner: Owner, now_ns: int) -> StoredResponse | None:
        """Return a response that its owner may see; `None` if there is none. Raises ObjectsUnavailable."""

        def work(connection: Connection) -> StoredResponse | None:
            columns = [_responses.c[name] for name in _STORED]
            found = connection.execute(select(*columns).where(*_visible(identifier, owner, now_ns))).one_or_none()
            return None if found is None else _stored(found)

        return await self._database.run(work)

    async def history(self, identifier: str, owner: Owner, now_ns: int, max_bytes: int) -> "History | None":
        """Return a response and all that it continues, oldest first; `None` if it does not exist.

        If they are too many or exceed `max_bytes` together, none are read; the result has only their size. Raises
        ObjectsUnavailable.
        """
        return await self._database.run(lambda connection: _history(connection, identifier, owner, now_ns, max_bytes))

    async def delete(self, identifier: str, owner: Owner, now_ns: int) -> bool:
        """Delete a response; return whether it existed. Raises ObjectsUnavailable."""
        statement = delete_from(_responses).where(*_visible(identifier, owner, now_ns))
        return await self._database.run(lambda connection: connection.execute(statement).rowcount > 0)

    async def sweep(self, now_ns: int, most: int) -> int:
        """Delete up to `most` expired responses; return how many. Raises ObjectsUnavailable."""
        expired = select(_responses.c.id).where(_responses.c.expires_ns <= now_ns).limit(most)
        statement = delete_from(_responses).where(_responses.c.id.in_(expired))
        return await self._database.run(lambda connection: connection.execute(statement).rowcount)


class History:
    """A chain of responses. `missing` is the id of a deleted one at its beginning; `size_bytes` is the total."""

    def __init__(self, responses: list[StoredResponse], size_bytes: int, missing: str | None, *, is_long: bool) -> None:
        self.responses = responses
        self.size_bytes = size_bytes
        self.missing = missing
        self.is_long = is_long  # whether the chain has more responses than are followed


def _visible(identifier: str, owner: Owner, now_ns: int) -> list[ColumnElement[bool]]:
    return [_responses.c.id == identifier, owned(_responses, owner), _responses.c.expires_ns > now_ns]


def _stored(row: Row[tuple[object, ...]]) -> StoredResponse:
    fields = dict(row._mapping)
    owner = Owner(fields.pop("tenant"), fields.pop("project"))
    return StoredResponse(owner=owner, **fields)


def _add(connection: Connection, response: StoredResponse, max_bytes: int) -> None:
    owner = response.owner
    held = select(func.coalesce(func.sum(_responses.c.size_bytes), 0)).where(_responses.c.tenant == owner.tenant)
    size_bytes = connection.execute(held).scalar_one()
    if size_bytes + response.size_bytes > max_bytes:
        raise InvalidRequest(
            f"the tenant {owner.tenant!r} keeps {size_bytes} bytes of responses, and at most {max_bytes} are kept; "
            f"this one has {response.size_bytes}: delete others, or send store: false",
            param="store",
            code="response_storage_full",
        )
    connection.execute(
        insert(_responses).values(
            id=response.id,
            tenant=owner.tenant,
            project=owner.project,
            created_ns=response.created_ns,
            expires_ns=response.expires_ns,
            previous_id=response.previous_id,
            size_bytes=response.size_bytes,
            body=response.body,
            items=response.items,
        )
    )
    if response.previous_id is not None:
        chain = _chain(response.previous_id, owner, response.created_ns)
        connection.execute(
            update(_responses)
            .where(_responses.c.id.in_(select(chain.c.id)), _responses.c.expires_ns < response.expires_ns)
            .values(expires_ns=response.expires_ns)
        )


def _chain(identifier: str, owner: Owner, now_ns: int) -> CTE:
    """Return the query of a response and those that it continues, with the depth of each."""
    columns = (_responses.c.id, _responses.c.previous_id, _responses.c.size_bytes)
    start = select(*columns, literal(0).label("depth")).where(*_visible(identifier, owner, now_ns))
    chain = start.cte("chain", recursive=True)
    further = (
        select(*columns, (chain.c.depth + 1).label("depth"))
        .join(chain, _responses.c.id == chain.c.previous_id)
        .where(owned(_responses, owner), _responses.c.expires_ns > now_ns, chain.c.depth < MAX_HISTORY_RESPONSES)
    )
    return chain.union_all(further)


def _history(connection: Connection, identifier: str, owner: Owner, now_ns: int, max_bytes: int) -> History | None:
    chain = _chain(identifier, owner, now_ns)
    sizes = select(func.count(), func.coalesce(func.sum(chain.c.size_bytes), 0)).select_from(chain)
    count, size_bytes = connection.execute(sizes).one()
    if not count:
        return None
    if count > MAX_HISTORY_RESPONSES or size_bytes > max_bytes:
        return History([], size_bytes, None, is_long=count > MAX_HISTORY_RESPONSES)
    columns = [_responses.c[name] for name in _STORED]
    query = select(*columns).join(chain, _responses.c.id == chain.c.id).order_by(chain.c.depth.desc())
    found = [_stored(row) for row in connection.execute(query)]
    return History(found, size_bytes, found[0].previous_id, is_long=False)
