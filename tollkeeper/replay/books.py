"""The books' side of a run: what the store holds of it, once everything has arrived there."""

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

_ARRIVAL_SECONDS: Final = 10.0  # a record is usually there within one
_POLL_SECONDS: Final = 0.1
_CLOCK_MARGIN: Final = timedelta(hours=1)  # the gateway may be on another machine


class RunBooks:
    """Reads runs from an installation's store, with the dashboard's address and rights."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    @classmethod
    def of_installation(cls, data: Path) -> "RunBooks | None":
        """Find the store: the one in the environment, else what `tollkeeper up` wrote down.

        `None` if nothing tells how to read one: the gateway then is another installation's.
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
        """Read a run, waiting up to ten seconds for this many complete answers and output tokens. Blocks.

        Gives what is there after that time, too. Raises StoreUnavailable.
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
