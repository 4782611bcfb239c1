"""Rollout reports for pages: requests are read here; a separate process compares them, then ends."""

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
    """The comparison process failed or gave no answer."""

    code = "report_failed"


def compared_arms(store: StoreClient, rollout: str, start: datetime, end: datetime) -> RolloutReport:
    """Return the rollout's report for a period, as `tollkeeper rollouts report` shows it.

    Takes seconds: call it in the background. Raises StoreUnavailable, ReportFailed.
    """
    task = read_arms(store, rollout, start, end)
    try:
        child = subprocess.run(
            [sys.executable, "-m", "dashboard.report_child"],
            input=msgspec.msgpack.encode(task),  # not JSON: it has no infinity, an interval's bound for one observation
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=True,
        )
        return msgspec.msgpack.decode(child.stdout, type=RolloutReport)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        log.warning("rollout_not_compared rollout=%s reason=%s", rollout, _reason(error))
        raise ReportFailed(f"the comparison failed; `tollkeeper rollouts report {rollout}` says why") from error


def _reason(error: Exception) -> str:
    """Return in one line why the process failed: the last line of its stderr, if there is one."""
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else b""
    last = said.decode(errors="replace").strip().rpartition("\n")[2] if said else ""
    return f"{error}: {last}"[:_MOST_SAID] if last else str(error)[:_MOST_SAID]
