"""Checks that every token an engine computed is accounted for, per replica and hour.

An engine computes the uncached part of a request's prompt, and every token of the answer except the last of each
choice, which nothing follows. So, for requests with one attempt:

    billed + overrun + recompute + wasted + lost in crash = engine tokens
    billed = uncached input + output - the last token of each choice

"Lost in crash" is due to a killed gateway or engine host: tokens of requests whose record has no account from the
engine, and of requests without a record whose engine host has written their account (attempt number 0). It may be
negative: steps that were lost with their host are billed but not counted as computed. Requests with neither are a
finding.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from backends.store.checks.finding import Finding
from backends.store.client import StoreClient
from backends.store.retention import RetentionRule
from backends.store.snapshot import StoreSnapshot
from contracts.metering.usage import FRESH_LEAVES, OUTPUT_LEAVES, sum_in_sql

_SETTLED: Final = timedelta(minutes=5)  # a request's record and its last steps arrive at different times
_LINES: Final = """
SELECT
    replica,
    toStartOfHour(UUIDv7ToDateTime(engine.id, 'UTC')) AS hour,
    countIf(booked.rows = 1) AS requests,
    sumIf(booked.billed, is_judged) AS billed,
    sumIf(booked.overrun, is_judged) AS overrun,
    sumIf(booked.recompute, is_judged) AS recompute,
    sumIf(booked.wasted, is_judged) AS wasted,
    sumIf(engine.tokens, is_judged OR is_claimed) AS engine_tokens,
    sumIf(engine.tokens, is_claimed)
        + sumIf(
            toInt64(engine.tokens) - booked.billed - booked.overrun - booked.recompute - booked.wasted,
            is_judged AND booked.has_no_account
        ) AS lost_in_crash,
    countIf(is_claimed OR (is_judged AND booked.has_no_account)) AS lost_requests,
    minIf(engine.first_at, is_claimed OR (is_judged AND booked.has_no_account)) AS lost_from,
    maxIf(engine.last_at, is_claimed OR (is_judged AND booked.has_no_account)) AS lost_to,
    sumIf(engine.tokens, booked.rows > 0 AND NOT is_judged) AS retried,
    sumIf(engine.tokens, booked.rows = 0 AND NOT is_claimed) AS unbooked,
    countIf(booked.rows = 0 AND NOT is_claimed) AS unbooked_requests,
    minIf(engine.first_at, booked.rows = 0 AND NOT is_claimed) AS unbooked_from,
    sumIf(booked.slack, is_judged) AS slack
FROM
(
    SELECT
        slot.1 AS id,
        replica,
        sum(slot.2) AS tokens,
        min(started_at) AS first_at,
        max(started_at) AS last_at,
        any(slot.3) AS tenant
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
        any(attempts) <= 1 AS is_single,
        any({fresh}) AS input,
        any({made}) AS output,
        toInt64(input) + output - least(any(choices), output) AS billed,
        any(ifNull(overrun_tokens, 0)) AS overrun,
        any(ifNull(recompute_tokens, 0)) AS recompute,
        any(ifNull(wasted_tokens, 0)) AS wasted,
        if(any(outcome) = 'ok', 0, any(choices) - 1) AS slack,
        any(gpu_prefill_ns IS NULL) OR any(error_code) = 'lost_in_crash' AS has_no_account
    FROM {requests} AND started_at >= {{since:DateTime64(3, 'UTC')}}
    GROUP BY request_id
) AS booked ON booked.request_id = engine.id
LEFT JOIN
(
    SELECT request_id, count() AS rows
    FROM {attempts} AND started_at >= {{since:DateTime64(3, 'UTC')}} AND number = 0
    GROUP BY request_id
) AS left_behind ON left_behind.request_id = engine.id
GROUP BY replica, hour
ORDER BY replica, hour
"""
# GPU time of all replicas together, because a request with several attempts may have steps on several.
_GPU_LINES: Final = """
SELECT
    toStartOfHour(UUIDv7ToDateTime(engine.id, 'UTC')) AS hour,
    sum(engine.ns) AS steps_ns,
    sum($booked) AS booked_ns,
    sumIf(toInt64(engine.ns) - toInt64($booked), $lost) AS lost_in_crash_ns,
    countIf($lost AND engine.ns != $booked) AS lost_requests,
    sumIf(engine.ns, booked.rows = 0 AND tried.accounts = 0) AS unbooked_ns,
    countIf(NOT $lost AND booked.rows + tried.accounts > 0 AND engine.ns != $booked) AS differing_requests
FROM
(
    SELECT slot.1 AS id, sum(slot.2) AS ns, max(started_at) AS last_at, any(slot.3) AS tenant
    FROM
    (
        SELECT started_at, arrayJoin(arrayZip(
            request_ids,
            arrayResize(gpu_ns, length(request_ids), 0),
            arrayResize(tenants, length(request_ids), '')
        )) AS slot
        FROM {steps} AND started_at >= {{since:DateTime64(3, 'UTC')}}
    )
    GROUP BY id
    HAVING last_at < {{settled:DateTime64(3, 'UTC')}} AND id != toUUID('00000000-0000-0000-0000-000000000000')
        AND UUIDv7ToDateTime(id, 'UTC') >= {{since:DateTime64(3, 'UTC')}} AND {kept}
) AS engine
LEFT JOIN
(
    SELECT
        request_id,
        count() AS rows,
        any(attempts) <= 1 AS is_single,
        any(gpu_prefill_ns IS NULL) AS has_no_account,
        any({gpu}) AS ns
    FROM {requests} AND started_at >= {{since:DateTime64(3, 'UTC')}}
    GROUP BY request_id
) AS booked ON booked.request_id = engine.id
LEFT JOIN
(
    SELECT
        request_id,
        sumIf({gpu}, number > 0) AS ns,
        countIf(number > 0 AND gpu_prefill_ns IS NULL) AS unknown,
        arraySum(one -> one.2, groupUniqArrayIf((replica, {gpu}), number = 0)) AS left_behind_ns,
        countIf(number = 0) AS accounts
    FROM {attempts} AND started_at >= {{since:DateTime64(3, 'UTC')}}
    GROUP BY request_id
) AS tried ON tried.request_id = engine.id
GROUP BY hour
ORDER BY hour
"""
_GPU_SUM: Final = (
    "(ifNull(gpu_prefill_ns, 0) + ifNull(gpu_decode_ns, 0) + ifNull(gpu_recompute_ns, 0) + ifNull(gpu_wasted_ns, 0))"
)


class TokenLines(msgspec.Struct, frozen=True):
    """Token totals of one replica and hour: billed, other uses, and computed by the engine.

    `retried`: computed for requests with several attempts, which are not checked. `lost_in_crash`: of requests whose
    gateway or engine host died before their usage was recorded, between `lost_from` and `lost_to`. `unbooked`: for
    requests without any usage record. `slack`: the possible error for interrupted requests with several choices,
    because the number of choices that had begun is not recorded.
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
    lost_in_crash: int = 0
    lost_requests: int = 0
    lost_from: str = ""
    lost_to: str = ""
    unbooked_requests: int = 0
    unbooked_from: str = ""

    @property
    def difference(self) -> int:
        """Return the tokens that were computed but not accounted for; negative: accounted for but not computed."""
        booked = self.billed + self.overrun + self.recompute + self.wasted
        return self.engine_tokens - booked - self.lost_in_crash

    @property
    def is_closed(self) -> bool:
        """Return whether all tokens are accounted for."""
        return abs(self.difference) <= self.slack and not self.unbooked

    def line(self) -> str:
        """Return the totals as one line."""
        lost, unbooked = "", ""
        if self.lost_requests:
            lost = f" ({self.lost_requests} requests from {self.lost_from} to {self.lost_to})"
        if self.unbooked_requests:
            unbooked = f" ({self.unbooked_requests} requests from {self.unbooked_from})"
        return (
            f"tokens {self.replica} {self.hour}: billed {self.billed} + overrun {self.overrun} "
            f"+ recompute {self.recompute} + wasted {self.wasted} + lost in crash {self.lost_in_crash}{lost}"
            f" = engine {self.engine_tokens}"
            f" (difference {self.difference}); retried {self.retried}, unbooked {self.unbooked}{unbooked}"
        )


class GpuLines(msgspec.Struct, frozen=True):
    """GPU time of one hour and all replicas: in steps, and on records.

    `lost_in_crash_ns`: of requests whose record has no account from the engine. `unbooked_ns`: of requests without a
    record. `differing_requests`: number of requests whose account differs from the sum of their steps.
    """

    hour: str
    steps_ns: int
    booked_ns: int
    lost_in_crash_ns: int
    lost_requests: int
    unbooked_ns: int
    differing_requests: int

    @property
    def difference_ns(self) -> int:
        """Return the time in steps that is not accounted for; negative: accounted for but in no step."""
        return self.steps_ns - self.booked_ns - self.lost_in_crash_ns - self.unbooked_ns

    @property
    def is_closed(self) -> bool:
        """Return whether all time is accounted for. Time of unbooked requests is not checked: their tokens already are
        a finding.
        """
        return not (self.differing_requests or self.difference_ns)

    def line(self) -> str:
        """Return the totals as one line."""
        return (
            f"gpu {self.hour}: booked {self.booked_ns} + lost in crash {self.lost_in_crash_ns} "
            f"({self.lost_requests} requests) = steps {self.steps_ns} ns (difference {self.difference_ns}, "
            f"{self.differing_requests} requests); unbooked {self.unbooked_ns}"
        )


def token_lines(
    client: StoreClient, snapshot: StoreSnapshot, rules: list[RetentionRule], hours: int
) -> list[TokenLines]:
    """Return the token totals of every replica and hour of the last `hours`, as long as steps are kept."""
    rows = _ask(
        client,
        snapshot,
        rules,
        hours,
        _LINES,
        {
            "is_judged": "(booked.rows = 1 AND booked.is_single)",
            "is_claimed": "(booked.rows = 0 AND left_behind.rows > 0)",
        },
    )
    return [
        TokenLines(
            replica=str(row["replica"]),
            hour=f"{row['hour']:%Y-%m-%dT%H:00Z}",
            **{name: int(str(row[name])) for name in _COUNTS},
            lost_in_crash=int(str(row["lost_in_crash"])),
            lost_requests=int(str(row["lost_requests"])),
            lost_from=_moment(row["lost_from"]),
            lost_to=_moment(row["lost_to"]),
            unbooked_requests=int(str(row["unbooked_requests"])),
            unbooked_from=_moment(row["unbooked_from"]),
        )
        for row in rows
    ]


def gpu_lines(client: StoreClient, snapshot: StoreSnapshot, rules: list[RetentionRule], hours: int) -> list[GpuLines]:
    """Return the GPU time of each of the last `hours`, as long as steps are kept."""
    rows = _ask(
        client,
        snapshot,
        rules,
        hours,
        _GPU_LINES,
        {
            "$booked": "(if(booked.is_single, booked.ns, tried.ns) + tried.left_behind_ns)",
            "$lost": "(booked.rows > 0 AND if(booked.is_single, booked.has_no_account, tried.unknown > 0))",
        },
    )
    return [GpuLines(f"{row['hour']:%Y-%m-%dT%H:00Z}", *(int(str(row[name])) for name in _GPU_COUNTS)) for row in rows]


def _ask(
    client: StoreClient,
    snapshot: StoreSnapshot,
    rules: list[RetentionRule],
    hours: int,
    sql: str,
    words: dict[str, str],
) -> list[dict[str, object]]:
    tables = {table.name: table for table in snapshot.tables}
    if "engine_steps" not in snapshot.filled:
        return []
    gone = [rule for rule in rules if rule.table == "requests"]
    asked = sql.format(
        steps=snapshot.rows_of(tables["engine_steps"]),
        requests=snapshot.rows_of(tables["requests"]),
        attempts=snapshot.rows_of(tables["attempts"]),
        gpu=_GPU_SUM,
        fresh=sum_in_sql(FRESH_LEAVES),
        made=sum_in_sql(OUTPUT_LEAVES),
        kept=" AND ".join(["1"] + [_kept(number) for number in range(len(gone))]),
    )
    for word, meaning in words.items():
        asked = asked.replace(word, meaning)
    bound: dict[str, object] = {"since": _hour(snapshot.at, hours), "settled": snapshot.at - _SETTLED}
    for number, rule in enumerate(gone):
        bound |= {f"tenant{number}": rule.tenant, f"before{number}": rule.deleted_before}
    return list(client.query(asked, bound))


_COUNTS: Final = (
    "requests", "billed", "overrun", "recompute", "wasted", "engine_tokens", "retried", "unbooked", "slack",
)  # fmt: skip


_GPU_COUNTS: Final = (
    "steps_ns", "booked_ns", "lost_in_crash_ns", "lost_requests", "unbooked_ns", "differing_requests",
)  # fmt: skip


def gpu_findings(lines: list[GpuLines]) -> list[Finding]:
    """Return findings for hours whose GPU time does not match the records to the nanosecond."""
    return [Finding("gpu_time_differs", line.hour, line.line()) for line in lines if not line.is_closed]


def token_findings(lines: list[TokenLines]) -> list[Finding]:
    """Return a finding for each replica and hour whose tokens do not add up."""
    return [
        Finding("tokens_differ", line.replica, line.line().removeprefix(f"tokens {line.replica} "))
        for line in lines
        if not line.is_closed
    ]


def _moment(value: object) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) and value.year > 1970 else ""


def _hour(at: datetime, hours: int) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours)


def _kept(number: int) -> str:
    gone = f"UUIDv7ToDateTime(id, 'UTC') < {{before{number}:DateTime('UTC')}}"
    return f"NOT (tenant = {{tenant{number}:String}} AND {gone})"
