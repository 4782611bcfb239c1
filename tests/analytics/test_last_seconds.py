"""A range's last second: the engine passes over parts that begin in it where a bound is of whole seconds."""

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from analytics.comparison.rollout_report import rollout_report
from analytics.queries import query, query_names
from backends.store.columns import arrow_batch
from contracts.recording.names import REQUESTS
from tests.analytics.cost.records import request

_WHOLE_SECONDS = r"\b{column}\s*(?:<|>(?!=))\s*toDateTime\("


def test_no_bound_of_a_column_with_fractions_is_of_whole_seconds(store) -> None:
    reader = store.client("reader")
    columns = reader.query(
        "SELECT DISTINCT name FROM system.columns WHERE database = currentDatabase() AND type LIKE 'DateTime64%'"
    )
    reader.close()
    names = [str(row["name"]) for row in columns]
    assert "started_at" in names and "at" in names
    wrong = [
        (name, found.group())
        for name in query_names()
        for column in names
        for found in re.finditer(_WHOLE_SECONDS.format(column=column), query(name))
    ]
    assert not wrong, "compare with toDateTime64(..., 9, 'UTC')"


@pytest.mark.parametrize(("before_end", "is_found"), [(1, True), (500_000, True), (999_999, True), (0, False)])
def test_what_came_in_the_last_second_is_found(store, before_end: int, is_found: bool) -> None:
    name, end = f"try-{uuid4().hex[:8]}", datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
    # The report's end is a whole second later than the one it is asked for.
    moment = end + timedelta(seconds=1) - timedelta(microseconds=before_end)
    writer, reader = store.client("writer"), store.client("reader")
    alone_in_its_part = [request(moment, rollout=name, arm="incumbent")]
    writer.insert_arrow("requests", arrow_batch(REQUESTS, alone_in_its_part), deduplication_token=name)
    report = rollout_report(reader, name, end - timedelta(days=1), end)
    writer.close()
    reader.close()
    assert report.incumbent_requests == is_found
