"""Queries of materialized views over views, rewritten to the rows that are kept longest, to compare rollups
with them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from backends.store.tables import RollupView, StoreTable

# A view that only sums: a coarser time bucket, keys, and each sum of the source under its own name.
_SUMMING: Final = re.compile(
    r"SELECT (?P<when>\w+\(.*\bsource\.bucket\b.*?\)) AS bucket, (\w+, )+(sum\(source\.(\w+)\) AS \4(, )?)+ "
    r"FROM \S+ AS source GROUP BY [\w, ]+"
)
_MOMENT: Final = re.compile(r"(?P<before>(WITH .*? AS \w+ )?SELECT )(?P<when>.+?) AS bucket, ")


def views_over_bases(views: Iterable[RollupView], tables: Mapping[str, StoreTable]) -> list[RollupView]:
    """Return the views, with those whose source expires sooner than their target rewritten to the source's source.

    For example, hours are filled from minutes, which are kept for seven days, so an hour of last month can only be
    computed from requests. `tables` are the store's, by name. Views that do more than sum are returned unchanged.
    """
    views = list(views)
    by_target = {view.target: view for view in views}
    return [_over_base(view, by_target, tables) for view in views]


def _over_base(view: RollupView, by_target: Mapping[str, RollupView], tables: Mapping[str, StoreTable]) -> RollupView:
    while (below := by_target.get(view.source)) is not None and _ends_sooner(tables[view.source], tables[view.target]):
        select = _joined(view.select, below.select)
        if select is None or set(tables[view.source].columns) != set(tables[view.target].columns):
            break
        view = replace(view, source=below.source, select=select)
    return view


def _ends_sooner(source: StoreTable, target: StoreTable) -> bool:
    if source.kept_seconds is None:
        return False
    return target.kept_seconds is None or source.kept_seconds < target.kept_seconds


def _joined(summing: str, below: str) -> str | None:
    """Return the query `below` with the time buckets of the view that sums it up; `None` if a form is unknown."""
    outer, inner = _SUMMING.fullmatch(summing), _MOMENT.match(below)
    if outer is None or inner is None:
        return None
    when = re.sub(r"\bsource\.bucket\b", lambda _: inner["when"], outer["when"])
    return f"{inner['before']}{when} AS bucket, {below[inner.end() :]}"
