"""Who answered, of all tenants by whole hours: what the engine keeps of it in each part is what the rows come to."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.queries import query
from analytics.routing.answered import read_answered
from analytics.routing.use import Use
from analytics.scope import Scope
from backends.store.checks.damage import damaged_parts
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from backends.store.deletion import SYNC
from backends.store.erasure import erase_tenant, erase_user
from backends.store.retention import apply_rules, set_rule, set_table_days
from backends.store.row_policies import TEAM_READER, TENANT_READER, row_policy_settings
from backends.store.store_locks import StoreLocks
from backends.store.tables import list_tables
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import OUTCOMES, request, usages

START = datetime(2057, 3, 1, tzinfo=UTC)
DAYS = 20
USE_KEPT = "optimize_use_projections"


@st.composite
def answered(draw: st.DrawFn) -> RequestRecord:
    """A request of the twenty days, at the bounds of its hour as often as anywhere else."""
    second = draw(st.integers(0, DAYS * 24 - 1)) * 3_600 + draw(st.sampled_from([0.0, 3_599.999999, 1_800.5]))
    return request(
        START + timedelta(seconds=second),
        who=Identity(draw(st.sampled_from(["acme", "globex"])), draw(st.sampled_from(["", "red"]))),
        model=draw(st.sampled_from(["small", "large"])),
        route=draw(st.sampled_from(["", "assistant"])),
        pool=draw(st.sampled_from(["", "chat"])),
        replica=draw(st.sampled_from(["", "a", "b"])),
        cache=draw(st.sampled_from(["", "miss", "hit", "semantic_hit"])),
        outcome=draw(st.sampled_from(OUTCOMES)),
        attempts=draw(st.integers(0, 3)),
        ttft_ns=draw(st.none() | st.integers(0, 10**12)),
        usage=draw(usages),
    )


def lines_of(rows: Sequence[RequestRecord]) -> dict[tuple[str, str, str, str], Use]:
    """What the rows come to."""
    found: dict[tuple[str, str, str, str], Use] = {}
    for row in rows:
        if row.outcome == "rejected" or row.cache in ("hit", "semantic_hit"):
            continue
        usage: Usage = row.usage
        cached = (usage.cache_read_text or 0) + (usage.cache_read_audio or 0)
        written = (usage.cache_write_5m or 0) + (usage.cache_write_1h or 0)
        given = (usage.input_text or 0) + (usage.input_audio or 0) + (usage.input_image or 0) + written + cached
        use = Use(1, row.outcome == "error", row.attempts > 1, given, cached, row.ttft_ns is not None, row.ttft_ns or 0)
        key = (row.pool, row.replica, row.model, row.route)
        found[key] = found.get(key, Use()) + use
    return found


def began(row: RequestRecord) -> datetime:
    return datetime.fromtimestamp(row.started_at_ns / 1e9, UTC)


def insert(writer: StoreClient, rows: Sequence[RequestRecord]) -> None:
    writer.insert_arrow("requests", arrow_batch(REQUESTS, rows), deduplication_token=str(uuid4()))


def parameters(scope: Scope) -> dict[str, object]:
    return {**scope.parameters(), "step": scope.step_seconds, "origin": scope.step_origin}


def plan(client: StoreClient, scope: Scope) -> str:
    return str(client.query(f"EXPLAIN {query('routing_answered_hours')}", parameters(scope)))


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    batches=st.lists(st.lists(answered(), min_size=1, max_size=30), min_size=1, max_size=3),
    start_s=st.integers(0, DAYS * 86_400),
    length=st.sampled_from([timedelta(hours=7), timedelta(days=1), timedelta(days=5), timedelta(days=DAYS)]),
    model=st.sampled_from([None, "small"]),
)
@pytest.mark.drill
def test_hours_of_all_tenants_are_what_their_requests_come_to(
    empty_store: Any, batches: list[list[RequestRecord]], start_s: int, length: timedelta, model: str | None
) -> None:
    rows = [row for batch in batches for row in batch]
    writer = empty_store.client("writer")
    writer.command("TRUNCATE TABLE requests")
    for batch in batches:
        insert(writer, batch)
    end = START + timedelta(seconds=start_s)
    scope = Scope(end - length, end, model=model, asked_at=end)
    covered = scope.covered
    within = [row for row in rows if covered.start <= began(row) < covered.end and model in (None, row.model)]
    reader = empty_store.client("reader")
    lines, hits = read_answered(reader, scope)
    assert {(line.pool, line.target, line.model, line.route): line.use for line in lines} == lines_of(within)
    by_step = Counter(
        (scope.step_starts[(int(began(row).timestamp()) - scope.step_starts.start) // scope.step_seconds], row.pool)
        for row in within
        if lines_of([row])
    )
    assert {(int(hit.step.timestamp()), hit.pool): hit.requests for hit in hits} == by_step
    assert not within or "answered_hour" in plan(reader, scope)
    for client in (reader, writer):
        client.close()


@pytest.fixture
def filled(empty_store: Any) -> Any:
    """A store with two days' requests of two tenants, each with two teams."""
    writer = empty_store.client("writer")
    for tenant in ("acme", "globex"):
        hours = range(48)
        insert(
            writer,
            [
                request(
                    START + timedelta(hours=hour),
                    who=Identity(tenant, ("red", "blue")[hour % 2], user=f"user-{hour}"),
                    pool="chat",
                    replica="a",
                    usage=Usage(input_text=hour),
                )
                for hour in hours
            ],
        )
    writer.close()
    return empty_store


TWO_DAYS = Scope(START, START + timedelta(days=2), asked_at=START + timedelta(days=2))


def counted(client: StoreClient, *, is_of_rows: bool = False, **row_policy_settings: Any) -> int:
    """How many requests the hours of all tenants have, from what is kept or from rows."""
    asked = {**row_policy_settings, USE_KEPT: 0 if is_of_rows else 1}
    rows = client.query(query("routing_answered_hours"), parameters(TWO_DAYS), settings=asked)
    return sum(int(str(row["request_count"])) for row in rows)


def test_what_leaves_the_store_leaves_the_hours(filled: Any, tmp_path: Path) -> None:
    client = filled.client("writer")

    def both() -> tuple[int, int]:
        assert "answered_hour" in plan(client, TWO_DAYS)
        return counted(client), counted(client, is_of_rows=True)

    assert both() == (96, 96)
    set_rule(client, "acme", "requests", 1)
    apply_rules(client, START + timedelta(days=1, hours=12), lambda line: None)
    assert both() == (84, 84)
    assert erase_user(client, "globex", "user-3", lambda line: None)
    assert both() == (84, 84)
    client.command("OPTIMIZE TABLE requests FINAL")
    assert both() == (84, 84)
    assert erase_tenant(client, StoreLocks(tmp_path), "globex", lambda line: None)
    assert both() == (36, 36)
    client.close()


def test_what_expires_leaves_the_hours(migrated_store: Any) -> None:
    """Rows of one part of which some have expired: whether a merge drops these alone is the engine's to decide."""
    migrated_store.start()
    client = migrated_store.client("writer")
    day = (datetime.now(UTC) - timedelta(days=900)).replace(day=15, hour=0, minute=0, second=0, microsecond=0)
    scope = Scope(day, day + timedelta(days=2), asked_at=day + timedelta(days=900))

    def both() -> tuple[int, int]:
        assert "answered_hour" in plan(client, scope)
        kept, rows = (
            sum(
                int(str(row["request_count"]))
                for row in client.query(query("routing_answered_hours"), parameters(scope), settings={USE_KEPT: use})
            )
            for use in (1, 0)
        )
        return kept, rows

    insert(client, [request(day + timedelta(minutes=10 * number), pool="chat") for number in range(200)])
    assert both() == (200, 200)
    client.command(
        "ALTER TABLE requests UPDATE ingested_at = started_at WHERE started_at < {until:DateTime('UTC')}",
        {"until": day + timedelta(minutes=1_000)},
        settings=SYNC,
    )
    for change in (
        lambda: client.command("OPTIMIZE TABLE requests FINAL"),
        lambda: set_table_days(client, "requests", 30),
        lambda: client.command("OPTIMIZE TABLE requests FINAL"),
    ):
        change()
        kept, rows = both()
        assert kept == rows >= 100
    client.close()


def test_a_clone_of_the_table_has_its_hours(filled: Any) -> None:
    client = filled.client("writer")
    client.command("CREATE TABLE tollkeeper_copy_of_requests CLONE AS requests")
    try:
        asked = query("routing_answered_hours").replace("FROM requests", "FROM tollkeeper_copy_of_requests")
        assert "answered_hour" in str(client.query(f"EXPLAIN {asked}", parameters(TWO_DAYS)))
        assert client.query(asked, parameters(TWO_DAYS)) == client.query(
            query("routing_answered_hours"), parameters(TWO_DAYS), settings={USE_KEPT: 0}
        )
    finally:
        client.command("DROP TABLE tollkeeper_copy_of_requests SYNC")
        client.close()


def test_the_stores_own_users_see_no_hours_of_others(filled: Any) -> None:
    """Their row policies know the tenant, which the kept hours do not: these must not answer them."""
    address = filled.address("reader")
    viewers: list[tuple[str, dict[str, Any], int]] = [
        (TENANT_READER, row_policy_settings("acme", None), 48),
        (TEAM_READER, row_policy_settings("acme", "red"), 24),
        (TENANT_READER, {}, 0),
        (TENANT_READER, row_policy_settings("", None), 0),
    ]
    for user, access, wanted in viewers:
        client = StoreClient(replace(address, user=user))
        assert counted(client, **access) == wanted
        client.close()


def test_one_tenant_is_answered_from_its_rows(filled: Any) -> None:
    reader = filled.client("reader")
    for scope in (replace(TWO_DAYS, tenant="acme"), replace(TWO_DAYS, tenant="acme", team="red")):
        assert "answered_hour" not in plan(reader, scope)
        found = reader.query(query("routing_answered_hours"), parameters(scope))
        lines, _ = read_answered(reader, scope)
        assert sum(line.use.requests for line in lines) == sum(int(str(row["request_count"])) for row in found) > 0
    reader.close()


def test_a_damaged_sum_is_found(migrated_store: Any) -> None:
    migrated_store.start()
    client = migrated_store.client("writer")
    insert(client, [request(START, who=Identity("acme"), pool="chat", replica="a")])
    (requests,) = (table for table in list_tables(client) if table.name == "requests")
    assert damaged_parts(client, [requests]) == []
    supervisor = migrated_store.client("supervisor")
    (row,) = supervisor.query("SELECT path FROM system.projection_parts WHERE active AND name = 'answered_hour'")
    supervisor.close()
    (file,) = Path(row["path"]).glob("data.bin")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    (finding,) = damaged_parts(client, [requests])
    assert (finding.kind, finding.where) == ("damaged_part", "requests")
    client.close()
