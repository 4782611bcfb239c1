"""Pages of metrics as a gateway writes them, with what a test cares about in them."""

from tollkeeper.top.page import MetricsPage, PagePair

_LATER_SECONDS = 2.0


def pair(earlier: str, later: str, seconds: float = _LATER_SECONDS) -> PagePair:
    return PagePair(MetricsPage.read([earlier], 100.0), MetricsPage.read([later], 100.0 + seconds))


def histogram(name: str, counts: dict[str, int], labels: str = "") -> str:
    """Write a histogram's buckets; `counts` are cumulative, by bound."""
    comma = "," if labels else ""
    return "\n".join(f'{name}_bucket{{{labels}{comma}le="{bound}"}} {count}' for bound, count in counts.items())
