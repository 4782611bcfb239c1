"""Checks for missing rows: gaps in senders' sequence numbers, and attempts that a request states but that
do not exist.
"""

from typing import Final

from backends.store.checks.finding import Finding
from backends.store.client import StoreClient
from backends.store.snapshot import StoreSnapshot
from backends.store.tables import StoreTable

_SENDERS: Final = {"engine_steps": "engine", "kv_events": "engine", "gpu_samples": "host"}
_SHOWN: Final = 3
_SUMMARY: Final = """
SELECT {sender} AS sender, min(sequence) AS first, max(sequence) AS last, count() AS rows,
       groupBitmap(sequence) AS seen
FROM {rows}
GROUP BY sender
HAVING rows != seen OR seen != last - first + 1
ORDER BY sender
"""
_HOLES: Final = """
SELECT sequence + 1 AS first, next - 1 AS last
FROM
(
    SELECT sequence, leadInFrame(sequence) OVER (ORDER BY sequence ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
           AS next
    FROM (SELECT DISTINCT sequence FROM {rows} AND {sender} = {{sender:String}})
)
WHERE next > sequence + 1
ORDER BY first
LIMIT {shown}
"""
# Minutes are kept longer than steps: their count of steps is compared with the range of sequence numbers.
_MINUTES: Final = """
SELECT engine AS sender, sum(steps) AS seen, max(last_sequence) - min(first_sequence) + 1 AS wanted
FROM {rows}
GROUP BY engine
HAVING seen != wanted
ORDER BY sender
"""
_ATTEMPTS: Final = """
SELECT count() AS requests, sum(asked.attempts) AS wanted, sum(found.rows) AS rows, any(asked.request_id) AS example
FROM (SELECT request_id, attempts FROM {requests} AND attempts > 1 AND error_code != 'lost_in_crash') AS asked
LEFT JOIN (SELECT request_id, count() AS rows FROM {attempts} AND number > 0 GROUP BY request_id) AS found
USING (request_id)
WHERE asked.attempts != found.rows
"""


def missing_numbers(client: StoreClient, snapshot: StoreSnapshot) -> list[Finding]:
    """Return findings for gaps and duplicates in senders' sequence numbers, and for requests with missing attempts."""
    tables = {table.name: table for table in snapshot.tables if table.name in snapshot.filled}
    findings: list[Finding] = []
    for name, sender in _SENDERS.items():
        if name in tables:
            findings += _of_sender(client, tables[name], snapshot.rows_of(tables[name]), sender)
    if "engine_minutes" in tables:
        rows = snapshot.rows_of(tables["engine_minutes"])
        findings += [
            Finding("sequence_gap", "engine_minutes", f"engine {row['sender']}: {row['seen']} of {row['wanted']} steps")
            for row in client.query(_MINUTES.format(rows=rows))
        ]
    if "requests" in tables:
        findings += _missing_attempts(client, snapshot, tables["requests"])
    return findings


def _of_sender(client: StoreClient, table: StoreTable, rows: str, sender: str) -> list[Finding]:
    findings = []
    for row in client.query(_SUMMARY.format(sender=sender, rows=rows)):
        first, last, count, seen = (int(str(row[name])) for name in ("first", "last", "rows", "seen"))
        who = f"{sender} {row['sender']}"
        if seen != last - first + 1:
            asked = _HOLES.format(rows=rows, sender=sender, shown=_SHOWN)
            holes = [f"{hole['first']}-{hole['last']}" for hole in client.query(asked, {"sender": row["sender"]})]
            missing = last - first + 1 - seen
            findings.append(
                Finding("sequence_gap", table.name, f"{who}: {missing} of {first}-{last} missing: {', '.join(holes)}")
            )
        if count != seen:
            findings.append(
                Finding("sequence_doubled", table.name, f"{who}: {count - seen} of {count} rows repeat a number")
            )
    return findings


def _missing_attempts(client: StoreClient, snapshot: StoreSnapshot, requests: StoreTable) -> list[Finding]:
    attempts = next(table for table in snapshot.tables if table.name == "attempts")
    asked = _ATTEMPTS.format(requests=snapshot.rows_of(requests), attempts=snapshot.rows_of(attempts))
    (row,) = client.query(asked)
    if not row["requests"]:
        return []
    detail = f"{row['requests']} requests took {row['wanted']} tries, {row['rows']} are there; one: {row['example']}"
    return [Finding("attempts_missing", "attempts", detail)]
