"""What is read off a process from outside while it serves, and lines through it that a few odd points do not bend."""

import os
import re
import statistics
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from bench.load.machine import spent_by

_BUCKET: Final = re.compile(r'^tollkeeper_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
_MOST_POINTS: Final = 300  # of a fit: a line through each pair of them is looked at


@dataclass(frozen=True, slots=True)
class Look:
    """What a process held at a moment: seconds from the beginning, resident MiB, open descriptors.

    `waited_seconds` is how long its main thread, where its event loop runs, has been ready and not been let run.
    """

    at_seconds: float
    rss_mib: float
    descriptors: int
    waited_seconds: float = 0.0


def look_at(pid: int, at_seconds: float) -> Look:
    """Look at a process now. Raises OSError if it is gone."""
    waited_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return Look(at_seconds, spent_by(pid).rss_mib, len(os.listdir(f"/proc/{pid}/fd")), waited_ns / 1e9)


def waited_share(looks: Sequence[Look]) -> float:
    """Return for how much of the time the event loop was kept waiting for a core."""
    if len(looks) < 2:
        raise ValueError(f"a share of the time needs two looks, not {len(looks)}")
    first, last = looks[0], looks[-1]
    return (last.waited_seconds - first.waited_seconds) / (last.at_seconds - first.at_seconds)


def slope_per_hour(looks: Sequence[Look]) -> float:
    """Return by how many MiB an hour memory grows: the median of the slopes through all pairs (Theil 1950, Sen 1968).

    Up to 29 % of the points may be anything without bending it, as a burst that is given back again. A staircase of few
    steps it takes for its treads: `growth_mib` sees what it does not.
    """
    points = looks[:: -(-len(looks) // _MOST_POINTS) or 1]
    slopes = [
        (two.rss_mib - one.rss_mib) / (two.at_seconds - one.at_seconds)
        for one, two in combinations(points, 2)
        if two.at_seconds > one.at_seconds
    ]
    if not slopes:
        raise ValueError(f"a slope needs two looks at different times, not {len(looks)}")
    return statistics.median(slopes) * 3600


def growth_mib(looks: Sequence[Look]) -> float:
    """Return by how much more is held in the last tenth of the looks than in the first, by their medians."""
    if len(looks) < 2:
        raise ValueError(f"growth needs two looks, not {len(looks)}")
    tenth = max(len(looks) // 10, 1)
    first, last = (statistics.median(look.rss_mib for look in part) for part in (looks[:tenth], looks[-tenth:]))
    return last - first


def lag_quantile(page: str, share: float) -> tuple[float, int]:
    """Return a quantile of the event loop's lag off a page of metrics, and of how many.

    It is the bound, in seconds, of the bucket that it lies in: infinite beyond the last.
    """
    buckets = [(float(bound), float(count)) for bound, count in _BUCKET.findall(page)]
    if not buckets or not buckets[-1][1]:
        raise ValueError("the page holds no lag of an event loop")
    total = buckets[-1][1]
    return next(bound for bound, count in buckets if count >= share * total), int(total)


def metrics_page(port: int) -> str:
    """Read the metrics of a gateway on this machine. Raises OSError if it does not answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def gauge(page: str, name: str) -> float:
    """Return a gauge without labels off a page of metrics. Raises ValueError if it is not there."""
    found = re.search(rf"^tollkeeper_{name} (\S+)$", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"the page holds no {name}")
    return float(found.group(1))
