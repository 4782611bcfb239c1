"""Forecasts for pages: the history is read here; a separate process computes the forecast, then ends."""

import subprocess
import sys
from typing import Final

import msgspec

from analytics.forecast.outlook import outlook_task
from analytics.forecast.spend import SpendForecast
from analytics.query_time import QueryTime
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError

_PATIENCE_SECONDS: Final = 60


class ForecastFailed(TollkeeperError):
    """The forecast process failed or gave no answer."""

    code = "forecast_failed"


def spend_outlook(
    store: StoreClient, asked: QueryTime, tenant: str | None = None, team: str | None = None
) -> SpendForecast | None:
    """Return the spending forecast of all tenants, of one tenant, or of one team; `None` if there is no history.

    Takes seconds: call it in the background. Raises StoreUnavailable, ForecastFailed.
    """
    task = outlook_task(store, asked, tenant, team)
    if task is None:
        return None
    try:
        child = subprocess.run(
            [sys.executable, "-m", "dashboard.forecast_child"],
            input=msgspec.json.encode(task),
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=True,
        )
        return msgspec.json.decode(child.stdout, type=SpendForecast)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise ForecastFailed("the forecast failed; `tollkeeper forecast` shows the reason") from error
