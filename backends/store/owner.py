"""The installation that a store belongs to, stored as the comment of its migrations table.

Comments are not copied with rows: a copied, restored or moved store gets its own when it is migrated.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from backends.store.tables import HISTORY, AskedStore
from contracts.errors import ForeignStore

_BEGINS: Final = "installation "
_ASKED: Final = "SELECT comment FROM system.tables WHERE database = {database:String} AND name = {table:String}"


class CommandedStore(AskedStore, Protocol):
    """The methods of the store's client that are needed to write the owner."""

    def command(self, sql: str) -> object:
        """Run a statement. Raises what StoreClient does."""


def read_owner(client: AskedStore, database: str) -> str:
    """Return the id of the installation that a database belongs to; empty if it has none or may not be read."""
    return owner_in(client.query(*owner_question(database)))


def owner_question(database: str) -> tuple[str, dict[str, object]]:
    """Return the SQL query for a database's owner, and its parameters."""
    return _ASKED, {"database": database, "table": HISTORY}


def owner_in(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the id in the result of `owner_question`; empty if there is none."""
    comment = str(rows[0]["comment"]) if rows else ""
    return comment.removeprefix(_BEGINS) if comment.startswith(_BEGINS) else ""


def write_owner(client: CommandedStore, installation: str, on_cluster: str = "") -> None:
    """Record that the client's database belongs to an installation; `on_cluster` is the ON CLUSTER clause."""
    client.command(f"ALTER TABLE {HISTORY}{on_cluster} MODIFY COMMENT '{_BEGINS}{installation}'")


def require_owner(owner: str, installation: str, where: str) -> None:
    """Raise ForeignStore if both ids are known and differ. `where` names the store and its database."""
    if owner and installation and owner != installation:
        raise ForeignStore(
            f"{where} belongs to another installation ({owner}; this one is {installation}). Correct "
            "TOLLKEEPER_STORE_URL or TOLLKEEPER_STORE_DATABASE; if the store is this installation's own, run "
            "`python -m migrations --only store --adopt-store`"
        )
