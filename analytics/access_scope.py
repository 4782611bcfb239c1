"""A viewer's reach (all data, one tenant, or one team), enforced in the store's client."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from backends.store.address import StoreAddress
from backends.store.client import Row, StoreClient
from backends.store.row_policies import row_policy_settings
from contracts.errors import NotFound, PermissionDenied, StoreRefused

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class AccessScope:
    """The only tenant and team whose data a viewer may see; `None`: all."""

    tenant: str | None = None
    team: str | None = None

    @property
    def is_bound(self) -> bool:
        """Return whether the reach is restricted."""
        return self.tenant is not None

    def narrowed(self, tenant: str | None, team: str | None = None) -> tuple[str | None, str | None]:
        """Return the tenant and team to restrict a query to. Raises NotFound if the arguments are outside the reach."""
        if self.tenant is not None and tenant not in (None, self.tenant):
            raise NotFound(f"tenant {tenant!r} does not exist; `tollkeeper tenants list` shows those that do")
        if self.team is not None and team not in (None, self.team):
            raise NotFound(f"tenant {self.tenant!r} has no team {team!r}")
        return self.tenant or tenant, self.team or team

    def require_no_team(self) -> None:
        """Raise PermissionDenied if the reach is one team, for data that is not stored by team."""
        if self.team is not None:
            raise PermissionDenied(f"this is about a whole tenant, and you may see only its team {self.team!r}")


EVERYTHING: Final = AccessScope()


class BoundStore(StoreClient):
    """A store client that refuses queries outside its reach: a query must bind `{tenant}`, and for a team `{team}`, to
    the reach's own; others raise PermissionDenied before they are sent.

    `is_policed`: the store's user has row policies, and each query passes the reach to them.
    """

    def __init__(
        self, address: StoreAddress, access: AccessScope, *, is_policed: bool = False, answer_seconds: int = 60
    ) -> None:
        super().__init__(address, answer_seconds=answer_seconds)
        self.access = access
        self._is_policed = is_policed

    def query(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> list[Row]:
        """Return the rows of a query that is restricted to the reach. Raises PermissionDenied for any other query."""
        with _refusals_explained():
            return super().query(sql, parameters, settings=self._held(sql, parameters, settings))

    def query_columns(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> dict[str, Sequence[object]]:
        """Return the columns of a query that is restricted to the reach. Raises PermissionDenied for any other."""
        with _refusals_explained():
            return super().query_columns(sql, parameters, settings=self._held(sql, parameters, settings))

    def query_frame(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> "pandas.DataFrame":
        """Return the data frame of a query that is restricted to the reach. Raises PermissionDenied for any other."""
        with _refusals_explained():
            return super().query_frame(sql, parameters, settings=self._held(sql, parameters, settings))

    def stream(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        form: str = "Native",
    ) -> Iterator[bytes]:
        """Yield the bytes of a query's result. The query must be restricted to the reach; else PermissionDenied."""
        return super().stream(sql, parameters, settings=self._held(sql, parameters, settings), form=form)

    def command(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> object:
        """Run a statement that is restricted to the reach. Raises PermissionDenied for any other statement."""
        return super().command(sql, parameters, settings=self._held(sql, parameters, settings))

    def _held(
        self, sql: str, parameters: Mapping[str, object] | None, settings: Mapping[str, object] | None
    ) -> Mapping[str, object] | None:
        given = parameters or {}
        for name, mine in (("tenant", self.access.tenant), ("team", self.access.team)):
            if mine is None:
                continue
            if f"{{{name}:" not in sql or given.get(name) != mine:
                raise PermissionDenied(f"this is not stored by {name}, and you may see only {name} {mine!r}")
        if not self._is_policed or self.access.tenant is None:
            return settings
        return {**(settings or {}), **row_policy_settings(self.access.tenant, self.access.team)}


@contextmanager
def _refusals_explained() -> Iterator[None]:
    """Convert the store's refusal of a table to PermissionDenied, as it is not a fault of the store or its schema."""
    try:
        yield
    except StoreRefused as error:
        if error.error_code == "store_forbidden":
            raise PermissionDenied("this covers all tenants or teams together, and you may see only one") from error
        raise
