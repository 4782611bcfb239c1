"""Tokens of MCP servers in the control database: encrypted, and renewed by one gateway at a time under a lease."""

from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any, Final

from backends.control.budget_states import insert_into
from backends.control.database import ControlDatabase
from backends.control.leases import HeldLease, give_back, take_lease
from backends.control.sealer import Sealer
from backends.mcp.token_store import encode_grant, opened_grant
from backends.secrets.secret_files import SecretFiles
from contracts.control import McpToken
from contracts.errors import ConfigurationError
from contracts.mcp.oauth import AccessGrant

_LEASE: Final = timedelta(seconds=30)  # longer than a renewal takes


class DatabaseTokenStore:
    """One gateway's access to the tokens that all gateways share."""

    def __init__(self, url: str, gateway: str, secrets: SecretFiles) -> None:
        self._database = ControlDatabase(url)  # connects at first use
        self._gateway = gateway
        self._secrets = secrets

    def claim(self, server: str) -> HeldLease | None:
        """Acquire the lease for renewing a server's tokens; `None` if another client holds it."""
        with self._database.session() as session:
            # A separate name for each claim: while a server is reconfigured, one gateway has two clients of it.
            holder = f"{self._gateway[:180]} {token_hex(8)}"
            return take_lease(session, _lease_name(server), holder, datetime.now(UTC), _LEASE)

    def read(self, server: str) -> AccessGrant | None:
        """Return a server's stored grant; `None` if there is none."""
        with self._database.session() as session:
            row = session.get(McpToken, server)
            sealed = None if row is None else row.sealed
        return None if sealed is None else opened_grant(sealed, self._sealer(), server)

    def keep(self, server: str, grant: AccessGrant) -> None:
        """Store a server's grant, in one statement."""
        values = {"sealed": self._sealer().seal(encode_grant(grant).decode()), "updated_at": datetime.now(UTC)}
        with self._database.session() as session:
            insert: Any = insert_into(session, McpToken)
            statement = insert.values(server=server, **values)
            session.execute(statement.on_conflict_do_update(index_elements=["server"], set_=values))

    def give_back(self, claim: HeldLease) -> None:
        """End the lease."""
        with self._database.session() as session:
            give_back(session, claim, datetime.now(UTC))

    def _sealer(self) -> Sealer:
        sealer = Sealer.existing(self._secrets)
        if sealer is None:
            raise ConfigurationError(
                "tokens of MCP servers are sealed with the control plane's sealing key; set TOLLKEEPER_SEALING_KEYS or "
                "share its secrets directory"
            )
        return sealer

    def close(self) -> None:
        """Close the database connections."""
        self._database.close()


def _lease_name(server: str) -> str:
    return f"mcp-token-{server}"
