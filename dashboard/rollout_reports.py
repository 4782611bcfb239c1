"""Reports of rollouts for pages: requests are read here, and compared in a process of its own, which ends with that."""

import subprocess
import sys
from datetime import datetime
from typing import Final

import msgspec

from analytics.comparison.arms import RolloutReport, read_arms
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError

_PATIENCE_SECONDS: Final = 120


class ReportFailed(TollkeeperError):
    """The process that compares arms did not answer."""

    code = "report_failed"


def compared_arms(store: StoreClient, rollout: str, start: datetime, end: datetime) -> RolloutReport:
    """Give what `tollkeeper rollout report` says of a stretch of time.

    For the background: takes seconds. Raises StoreUnavailable, ReportFailed.
    """
    task = read_arms(store, rollout, start, end)
    try:
        child = subprocess.run(
            [sys.executable, "-m", "dashboard.report_child"],
            input=msgspec.msgpack.encode(task),  # which has infinity, as the end of an interval of one observation is
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=True,
        )
        return msgspec.msgpack.decode(child.stdout, type=RolloutReport)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise ReportFailed(f"the arms could not be compared; `tollkeeper rollout report {rollout}` says why") from error
