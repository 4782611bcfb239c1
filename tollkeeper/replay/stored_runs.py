"""Reads the store's totals of a replay run, once all records have arrived."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from analytics.runs import RunTotals, run_totals
from analytics.scope import Period
from backends.secrets.secret_files import SecretFiles
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError
from dashboard.settings import DashboardSettings
from tollkeeper.installation import Installation

_ARRIVAL_SECONDS: Final = 10.0  # a record usually arrives within one second
_POLL_SECONDS: Final = 0.1
_CLOCK_MARGIN: Final = timedelta(hours=1)  # margin for a gateway on another machine with another clock


class StoredRuns:
    """Reads totals of runs from an installation's store, with the dashboard's read-only user."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    @classmethod
    def of_installation(cls, data: Path) -> "StoredRuns | None":
        """Return a reader of the store in the environment, else of the one that `tollkeeper up` runs.

        `None` if neither is known, because the gateway belongs to another installation.
        """
        installation = Installation(data)
        settings = DashboardSettings(data=data)
        if settings.store_password is None and SecretFiles(installation.secrets).get("store_reader") is None:
            return None
        if "store_url" not in settings.model_fields_set:
            settings = settings.model_copy(update={"store_url": installation.address_of("store") or settings.store_url})
        try:
            return cls(StoreClient(settings.store_address()))
        except TollkeeperError:
            return None

    def read(self, run_id: str, began_at: datetime, ok: int, output_tokens: int) -> RunTotals:
        """Return a run's totals; waits up to ten seconds for `ok` complete answers and `output_tokens`. Blocks.

        After that time, returns the totals so far. Raises StoreUnavailable.
        """
        since = began_at.astimezone(UTC) - _CLOCK_MARGIN
        deadline = time.monotonic() + _ARRIVAL_SECONDS
        while True:
            totals = run_totals(self._client, run_id, Period(since, datetime.now(UTC) + _CLOCK_MARGIN))
            has_all = totals.ok >= ok and totals.ok_output_tokens >= output_tokens
            if has_all or time.monotonic() > deadline:
                return totals
            time.sleep(_POLL_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
