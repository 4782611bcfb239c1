"""The requests that benchmarks fill stores with: their ids tell the moment, as gateways' do."""

from datetime import UTC, datetime, timedelta
from typing import Any

from bench.store import Month, insert_requests


def test_ids_tell_the_moment(empty_store: Any) -> None:
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    month = Month(500, 3, midnight, 1)
    writer, reader = empty_store.client("writer"), empty_store.client("reader")
    insert_requests(writer, month, 0, 500, {})
    rows = reader.query(
        "SELECT count() AS found, uniqExact(request_id) AS ids, min(started_at) AS first, "
        "max(abs(dateDiff('millisecond', UUIDv7ToDateTime(request_id, 'UTC'), started_at))) AS apart, "
        "groupUniqArray(substring(toString(request_id), 15, 1)) AS versions FROM requests"
    )
    writer.close()
    reader.close()
    (row,) = rows
    assert (row["found"], row["ids"], row["versions"]) == (500, 500, ["7"])
    assert int(str(row["apart"])) <= 1
    assert row["first"] >= midnight - timedelta(days=3)
