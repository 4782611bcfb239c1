"""Reports of rollouts for pages: requests are read here, and compared in a process of its own, which ends with that."""

import logging
import subprocess
import sys
from datetime import datetime
from typing import Final

import msgspec

from analytics.comparison.arms import RolloutReport, read_arms
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError

log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 120
_MOST_SAID: Final = 300


class ReportFailed(TollkeeperError):
    """The process that compares arms did not answer."""

    code = "report_failed"


def compared_arms(store: StoreClient, rollout: str, start: datetime, end: datetime) -> RolloutReport:
    """Return what `tollkeeper rollouts report` says of a stretch of time.

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
        log.warning("rollout_not_compared rollout=%s reason=%s", rollout, _reason(error))
        raise ReportFailed(f"the comparison failed; `tollkeeper rollouts report {rollout}` says why") from error


def _reason(error: Exception) -> str:
    """Describe in one line why the process did not answer: the last that it said, where it said anything."""
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else b""
    last = said.decode(errors="replace").strip().rpartition("\n")[2] if said else ""
    return f"{error}: {last}"[:_MOST_SAID] if last else str(error)[:_MOST_SAID]
