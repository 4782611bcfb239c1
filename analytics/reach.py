"""A viewer's reach: everything, one tenant, or one team; enforced where the store is queried."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from backends.store.address import StoreAddress
from backends.store.client import Row, StoreClient
from backends.store.row_policies import told
from contracts.errors import NotFound, PermissionDenied, StoreRefused

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Reach:
    """The tenant and team that alone may be seen; `None` if all may be."""

    tenant: str | None = None
    team: str | None = None

    @property
    def is_bound(self) -> bool:
        """Return whether there is anything that may not be seen."""
        return self.tenant is not None

    def narrowed(self, tenant: str | None, team: str | None = None) -> tuple[str | None, str | None]:
        """Return the tenant and team that a question is to be held to. Raises NotFound on another's than these."""
        if self.tenant is not None and tenant not in (None, self.tenant):
            raise NotFound(f"tenant {tenant!r} does not exist; `tollkeeper tenants list` shows those that do")
        if self.team is not None and team not in (None, self.team):
            raise NotFound(f"tenant {self.tenant!r} has no team {team!r}")
        return self.tenant or tenant, self.team or team

    def require_no_team(self) -> None:
        """Raise PermissionDenied for who sees one team alone: what is asked for is not kept by team."""
        if self.team is not None:
            raise PermissionDenied(f"this is about a whole tenant, and you see its team {self.team!r} alone")


EVERYTHING: Final = Reach()


class BoundStore(StoreClient):
    """A store's client that puts no question which is not held to its reach: it must bind `{tenant}`, and for a team
    `{team}`, to the reach's own. A question that forgets raises PermissionDenied here, before the store is asked.

    `is_policed` says that the store's user has row policies, which are told the reach with each question.
    """

    def __init__(
        self, address: StoreAddress, reach: Reach, *, is_policed: bool = False, answer_seconds: int = 60
    ) -> None:
        super().__init__(address, answer_seconds=answer_seconds)
        self.reach = reach
        self._is_policed = is_policed

    def query(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> list[Row]:
        """Return the rows of a question about what is within reach. Raises PermissionDenied on another."""
        with _refusals_explained():
            return super().query(sql, parameters, settings=self._held(sql, parameters, settings))

    def query_columns(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> dict[str, Sequence[object]]:
        """Return the columns of a question about what is within reach. Raises PermissionDenied on another."""
        with _refusals_explained():
            return super().query_columns(sql, parameters, settings=self._held(sql, parameters, settings))

    def query_frame(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> "pandas.DataFrame":
        """Return the frame of a question about what is within reach. Raises PermissionDenied on another."""
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
        """Return the bytes of a question about what is within reach. Raises PermissionDenied on another."""
        return super().stream(sql, parameters, settings=self._held(sql, parameters, settings), form=form)

    def command(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> object:
        """Run a statement that is held to the reach, as any question is. Raises PermissionDenied on another."""
        return super().command(sql, parameters, settings=self._held(sql, parameters, settings))

    def _held(
        self, sql: str, parameters: Mapping[str, object] | None, settings: Mapping[str, object] | None
    ) -> Mapping[str, object] | None:
        given = parameters or {}
        for name, mine in (("tenant", self.reach.tenant), ("team", self.reach.team)):
            if mine is None:
                continue
            if f"{{{name}:" not in sql or given.get(name) != mine:
                raise PermissionDenied(f"this is not kept by {name}, and you see {name} {mine!r} alone")
        if not self._is_policed or self.reach.tenant is None:
            return settings
        return {**(settings or {}), **told(self.reach.tenant, self.reach.team)}


@contextmanager
def _refusals_explained() -> Iterator[None]:
    """Provide of what the store's user may not read that it is for others: no fault of the store, nor of its schema."""
    try:
        yield
    except StoreRefused as error:
        if error.error_code == "store_forbidden":
            raise PermissionDenied("this covers all tenants or teams together, and you may see only one") from error
        raise
