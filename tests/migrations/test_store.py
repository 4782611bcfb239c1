"""The store's migrations: the tables they make are the ones the records need, and history is guarded."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.store.columns import STORE_TYPES
from contracts.errors import ConfigurationError, NewerSchema, StoreUnavailable
from contracts.recording.names import TABLES
from migrations.store import SCRIPTS, StoreMigration, migrate_store, read_migrations

# `now64()` at arrival, and what ClickHouse computes itself: not written by anyone.
STORES_OWN = {"ingested_at"}
# No batch is inserted into these: what has been applied, and who may insert a batch, where each claim must be kept.
WITHOUT_TOKENS = ["schema_migrations", "batch_claims"]


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_a_tables_columns_are_those_of_its_records_in_order(store: Any, table: Any) -> None:
    client = store.client()
    sql = (
        "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
        "AND default_kind != 'ALIAS' ORDER BY position"
    )
    found = [(row["name"], row["type"]) for row in client.query(sql, {"table": table.name})]
    wanted = [(column.name, STORE_TYPES[column.kind].clickhouse) for column in table.columns]
    assert [column for column in found if column[0] not in STORES_OWN] == wanted
    assert {name for name, _ in found} - {name for name, _ in wanted} == STORES_OWN
    client.close()


def test_every_table_of_the_design_is_there(store: Any) -> None:
    client = store.client("reader")
    rows = client.query("SELECT name FROM system.tables WHERE database = currentDatabase()")
    wanted = {"requests", "attempts", "engine_steps", "kv_events", "gpu_samples", "traces", "metrics", "logs"}
    wanted |= {"content", "requests_minute", "requests_hour", "requests_day", "distinct_values", "engine_minutes"}
    wanted |= {"engine_tenant_minutes", "schema_migrations", "otel_traces", "otel_logs"}
    wanted |= {"requests_recent", "latency_day", "model_latency_day", "tenant_cost_day"}
    wanted |= {"indicators_minute", "indicators_hour", "feedback"}
    assert wanted <= {row["name"] for row in rows}
    client.close()


def test_every_table_that_batches_reach_remembers_their_tokens(store: Any) -> None:
    client = store.client()
    rows = client.query(
        "SELECT name, create_table_query AS made FROM system.tables "
        "WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name NOT IN {without:Array(String)}",
        {"without": WITHOUT_TOKENS},
    )
    assert len(rows) >= 15
    for row in rows:
        assert "non_replicated_deduplication_window = 10000" in row["made"], row["name"]
    client.close()


def test_tenants_lead_the_sort_key_and_never_the_partition(store: Any) -> None:
    client = store.client()
    rows = client.query(
        "SELECT name, sorting_key, partition_key FROM system.tables "
        "WHERE database = currentDatabase() AND has(splitByString(', ', sorting_key), 'tenant')"
    )
    leading = {row["name"] for row in rows if str(row["sorting_key"]).startswith("tenant")}
    assert {"requests", "attempts", "traces", "metrics", "logs", "content", "requests_day"} <= leading
    assert not [row for row in rows if "tenant" in str(row["partition_key"])]
    client.close()


def test_views_for_other_tools_answer(empty_store: Any) -> None:
    client = empty_store.client("reader")
    for view, columns in {
        "otel_traces": "Timestamp, TraceId, SpanId, SpanName, ServiceName, Duration, StatusCode, Events.Name",
        "otel_logs": "Timestamp, TraceId, SeverityText, Body, LogAttributes",
    }.items():
        assert client.query(f"SELECT {columns} FROM {view}") == []
    client.close()


def test_migrating_again_changes_nothing(store: Any) -> None:
    lines: list[str] = []
    migrate_store(store.address(), read_migrations(), wait_seconds=0, say=lines.append)
    assert lines == [f"store: at head ({read_migrations()[-1].label})"]
    client = store.client("reader")
    rows = client.query("SELECT version, count() AS times FROM schema_migrations GROUP BY version ORDER BY version")
    assert [(row["version"], row["times"]) for row in rows] == [(m.version, 1) for m in read_migrations()]
    client.close()


def test_each_file_says_why_how_to_undo_it_and_what_it_locks() -> None:
    for migration in read_migrations():
        opening = migration.sql.splitlines()[:3]
        assert [line.split(":")[0] for line in opening] == ["-- Why", "-- Undo", "-- Locks"], migration.label


def test_every_statement_can_be_repeated() -> None:
    for migration in read_migrations():
        before: list[str] = []
        for statement in migration.statements():
            copied = re.match(r"INSERT INTO (\w+)", statement)
            if copied is not None and f"ALTER TABLE {copied[1]}\n    DROP COLUMN IF EXISTS" in "\n".join(before):
                dropped = set(re.findall(r"DROP COLUMN IF EXISTS (\w+)", "\n".join(before)))
                filled = re.search(r"\(([\w, ]+)\)", statement)
                assert filled is not None
                keys = {"bucket", "tenant", "team", "project", "model", "outcome"}
                assert set(filled[1].split(", ")) - keys <= dropped, "it adds to columns that begin empty, and no other"
                assert statement.endswith("SETTINGS insert_deduplicate = 0"), copied[1]
            elif copied is not None:  # into a table that was emptied and has no view that fills it yet
                table = copied[1]
                assert f"TRUNCATE TABLE IF EXISTS {table}" in before, (migration.label, table)
                assert any(re.match(rf"DROP VIEW IF EXISTS {table}_from_\w+$", line) for line in before), table
                assert not any(f" TO {table} AS" in line for line in before), table
                assert statement.endswith("SETTINGS insert_deduplicate = 0"), table
            else:
                assert "IF NOT EXISTS" in statement or "IF EXISTS" in statement, (migration.label, statement[:60])
            before.append(statement)


@pytest.fixture
def fresh_store(new_store: Any) -> Any:
    new_store.start()
    return new_store


def test_a_views_query_is_never_changed_in_place() -> None:
    """A changed view gives the same batch another token after the store's next start, and the batch counts twice."""
    assert not [m.label for m in read_migrations() if any("MODIFY QUERY" in sql.upper() for sql in m.statements())]


def test_a_migration_cut_half_way_is_completed(fresh_store: Any) -> None:
    complete = StoreMigration(
        1, "two", "CREATE TABLE IF NOT EXISTS a (x UInt8) ENGINE = Memory;\nCREATE TABLE IF NOT EXISTS b AS a;\n"
    )
    cut = replace(complete, sql=complete.sql.replace("CREATE TABLE IF NOT EXISTS b", "CREATE NONSENSE b"))
    lines: list[str] = []
    with pytest.raises(Exception, match="refused"):
        migrate_store(fresh_store.address(), [cut], wait_seconds=5, say=lines.append)
    assert lines == []
    migrate_store(fresh_store.address(), [complete], wait_seconds=5, say=lines.append)
    assert lines == ["store: applied 0001_two"]


def test_history_is_guarded(fresh_store: Any) -> None:
    first = StoreMigration(1, "one", "CREATE TABLE IF NOT EXISTS a (x UInt8) ENGINE = Memory;\n")
    second = StoreMigration(2, "two", "CREATE TABLE IF NOT EXISTS b (x UInt8) ENGINE = Memory;\n")
    lines: list[str] = []
    migrate_store(fresh_store.address(), [first, second], wait_seconds=5, say=lines.append)
    with pytest.raises(NewerSchema, match="has migration 0002_two, this version of Tollkeeper knows up to 0001"):
        migrate_store(fresh_store.address(), [first], wait_seconds=5, say=lines.append)
    changed = replace(second, sql=second.sql + "-- changed\n")
    with pytest.raises(ConfigurationError, match="0002_two has changed since the store applied it"):
        migrate_store(fresh_store.address(), [first, changed], wait_seconds=5, say=lines.append)
    assert lines == ["store: applied 0001_one", "store: applied 0002_two"]


def test_a_store_that_does_not_answer_is_unavailable(new_store: Any) -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        migrate_store(new_store.address(), read_migrations(), wait_seconds=0.2, say=lambda line: None)


@pytest.mark.parametrize("names", [["1_a.sql"], ["0001_A.sql"], ["0002_a.sql"], ["0001_a.sql", "0001_b.sql"]])
def test_misnumbered_files_are_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1;\n")
    with pytest.raises(ConfigurationError):
        read_migrations(tmp_path)


def test_semicolons_in_comments_end_nothing() -> None:
    sql = "-- Undo: DROP a; DROP b;\nSELECT 1;\n    -- then; this;\nSELECT\n    2; \n\n"
    assert list(StoreMigration(1, "x", sql).statements()) == ["SELECT 1", "SELECT\n    2"]
    assert SCRIPTS.is_dir()
