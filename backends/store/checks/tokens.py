"""Is every token that an engine computed on somebody's account? Per replica and hour, each line by its name.

An engine computes a request's prompt where it has it not cached, and every token of the answer but the last of each
choice, which nothing follows. So, for requests that took one try:

    billed + overrun + recompute + wasted = engine tokens
    billed = uncached input + output - the last token of each choice
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from backends.store.checks.finding import Finding
from backends.store.client import StoreClient
from backends.store.retention import RetentionRule
from backends.store.snapshot import StoreSnapshot

_SETTLED: Final = timedelta(minutes=5)  # a request's record and its last steps come by different ways
_LINES: Final = """
SELECT
    replica,
    toStartOfHour(UUIDv7ToDateTime(engine.id, 'UTC')) AS hour,
    countIf(booked.rows = 1) AS requests,
    sumIf(booked.billed, is_judged) AS billed,
    sumIf(booked.overrun, is_judged) AS overrun,
    sumIf(booked.recompute, is_judged) AS recompute,
    sumIf(booked.wasted, is_judged) AS wasted,
    sumIf(engine.tokens, is_judged) AS engine_tokens,
    sumIf(engine.tokens, booked.rows > 0 AND NOT is_judged) AS retried,
    sumIf(engine.tokens, booked.rows = 0) AS unbooked,
    sumIf(booked.slack, is_judged) AS slack
FROM
(
    SELECT slot.1 AS id, replica, sum(slot.2) AS tokens, max(started_at) AS last_at, any(slot.3) AS tenant
    FROM
    (
        SELECT replica, started_at, arrayJoin(arrayZip(
            request_ids,
            arrayResize(scheduled, length(request_ids), 0),
            arrayResize(tenants, length(request_ids), '')
        )) AS slot
        FROM {steps} AND started_at >= {{since:DateTime64(3, 'UTC')}}
    )
    GROUP BY id, replica
    HAVING last_at < {{settled:DateTime64(3, 'UTC')}} AND id != toUUID('00000000-0000-0000-0000-000000000000')
        AND UUIDv7ToDateTime(id, 'UTC') >= {{since:DateTime64(3, 'UTC')}} AND {kept}
) AS engine
LEFT JOIN
(
    SELECT
        request_id,
        count() AS rows,
        any(attempts) <= 1 AND any(error_code) != 'lost_in_crash' AS is_single,
        any(
            ifNull(tokens_input_text, 0) + ifNull(tokens_input_audio, 0) + ifNull(tokens_input_image, 0)
            + ifNull(tokens_cache_write_5m, 0) + ifNull(tokens_cache_write_1h, 0)
        ) AS input,
        any(
            ifNull(tokens_output_text, 0) + ifNull(tokens_output_reasoning, 0)
            + ifNull(tokens_output_audio, 0) + ifNull(tokens_output_image, 0)
        ) AS output,
        toInt64(input) + output - least(any(choices), output) AS billed,
        any(ifNull(overrun_tokens, 0)) AS overrun,
        any(ifNull(recompute_tokens, 0)) AS recompute,
        any(ifNull(wasted_tokens, 0)) AS wasted,
        if(any(outcome) = 'ok', 0, any(choices) - 1) AS slack
    FROM {requests} AND started_at >= {{since:DateTime64(3, 'UTC')}}
    GROUP BY request_id
) AS booked ON booked.request_id = engine.id
GROUP BY replica, hour
ORDER BY replica, hour
"""


class TokenLines(msgspec.Struct, frozen=True):
    """One replica's hour: what its requests were billed, what else their tokens went to, and what it computed.

    `retried`: computed for requests that took several tries, whose books are kept by try, or whose gateway died, whose
    usage is an estimate: they are not judged.
    `unbooked`: for requests that have no record. `slack` is by how much a cut request of several choices may be off:
    how many of them had begun is not recorded.
    """

    replica: str
    hour: str
    requests: int
    billed: int
    overrun: int
    recompute: int
    wasted: int
    engine_tokens: int
    retried: int
    unbooked: int
    slack: int

    @property
    def difference(self) -> int:
        """Tokens that were computed and are on no line; below 0: on a line and never computed."""
        return self.engine_tokens - self.billed - self.overrun - self.recompute - self.wasted

    @property
    def is_closed(self) -> bool:
        """Whether every token is on a line."""
        return abs(self.difference) <= self.slack and not self.unbooked

    def line(self) -> str:
        """Give them as one line."""
        return (
            f"tokens {self.replica} {self.hour}: billed {self.billed} + overrun {self.overrun} "
            f"+ recompute {self.recompute} + wasted {self.wasted} = engine {self.engine_tokens}"
            f" (difference {self.difference}); retried {self.retried}, unbooked {self.unbooked}"
        )


def token_lines(
    client: StoreClient, snapshot: StoreSnapshot, rules: list[RetentionRule], hours: int
) -> list[TokenLines]:
    """Give the lines of every replica for the hours before the snapshot, as long as steps are kept."""
    tables = {table.name: table for table in snapshot.tables}
    if "engine_steps" not in snapshot.filled:
        return []
    gone = [rule for rule in rules if rule.table == "requests"]
    asked = _LINES.format(
        steps=snapshot.rows_of(tables["engine_steps"]),
        requests=snapshot.rows_of(tables["requests"]),
        kept=" AND ".join(["1"] + [_kept(number) for number in range(len(gone))]),
    ).replace("is_judged", "(booked.rows = 1 AND booked.is_single)")
    bound: dict[str, object] = {"since": _hour(snapshot.at, hours), "settled": snapshot.at - _SETTLED}
    for number, rule in enumerate(gone):
        bound |= {f"tenant{number}": rule.tenant, f"before{number}": rule.deleted_before}
    return [
        TokenLines(str(row["replica"]), f"{row['hour']:%Y-%m-%dT%H:00Z}", *(int(str(row[name])) for name in _COUNTS))
        for row in client.query(asked, bound)
    ]


_COUNTS: Final = (
    "requests", "billed", "overrun", "recompute", "wasted", "engine_tokens", "retried", "unbooked", "slack",
)  # fmt: skip


def token_findings(lines: list[TokenLines]) -> list[Finding]:
    """Give the lines that do not close."""
    return [
        Finding("tokens_differ", line.replica, line.line().removeprefix(f"tokens {line.replica} "))
        for line in lines
        if not line.is_closed
    ]


def _hour(at: datetime, hours: int) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours)


def _kept(number: int) -> str:
    gone = f"UUIDv7ToDateTime(id, 'UTC') < {{before{number}:DateTime('UTC')}}"
    return f"NOT (tenant = {{tenant{number}:String}} AND {gone})"
