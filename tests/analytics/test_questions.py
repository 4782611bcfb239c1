"""What holds for all queries, and the values that filters offer."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import analytics.queries
from analytics.distinct import distinct, made_in_order
from analytics.overview import overview
from analytics.queries import query, query_names
from analytics.rows import UnexpectedRow, money_of, number_of, numbers_of, text_of
from analytics.scope import Scope
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_team, create_tenant
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.errors import StoreUnavailable
from contracts.recording.records import RequestRecord

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
# A row per value or rule, not per request; and what is bounded to the nanosecond, or by one side alone.
# What counts tokens of some kinds alone; all others name a list of kinds, so that a new kind is in them.
OF_SOME_KINDS = {"agent_turns", "prompt_sizes", "quality", "rollout_requests", "saving_evidence"}
# Sums of the whole installation, compared with the control database or with providers' bills: no tenant asks for them.
OF_THE_INSTALLATION = {"billed_retries", "billed_usage", "book_copies", "corrections_by_tenant"}
NO_TIME_RANGE = {"distinct", "deleted_requests", "word_columns", "budget_ledger", "gpu_machines_before"}
READ = re.compile(
    r"FROM (requests|\{rollup:Identifier\}|\{source:Identifier\}|distinct_values|latency_day|tenant_cost_day|retention"
    r"|feedback|content|attempts|book_entries|\{days:Identifier\}|requests_(recent|minute|hour))(?!\w)"
)
# What engines and GPUs did is the platform's: an engine serves all tenants, and none may ask for it.
READ_PLATFORM = re.compile(
    r"FROM (engine_steps|engine_minutes|engine_tenant_minutes|gpu_samples|gpu_hours|gpu_tenant_hours)(?!\w)"
)
# A table without tenants in it: it may not answer for one.
READ_ALL_TENANTS = re.compile(r"FROM model_latency_day\n *WHERE \{tenant:Nullable\(String\)\} IS NULL\n")


@pytest.mark.parametrize("name", query_names())
def test_every_query_says_what_it_asks_and_can_be_held_to_one_tenant(name: str) -> None:
    text = query(name)
    assert text.startswith("-- ")
    if name in OF_THE_INSTALLATION:
        assert "{tenant:" not in text
        return
    reads, all_tenants = len(READ.findall(text)), len(READ_ALL_TENANTS.findall(text))
    platform = len(READ_PLATFORM.findall(text))
    assert reads + all_tenants + platform > 0
    assert text.count("model_latency_day") == all_tenants
    of_one = text.count("{tenant:Nullable(String)} IS NULL OR tenant = {tenant:Nullable(String)}")
    assert of_one + text.count("tenant = {tenant:String}") == reads  # some ask of one tenant alone
    if name not in NO_TIME_RANGE:
        bounded = reads + platform
        assert text.count(" >= toDateTime") >= bounded and text.count(" < toDateTime") >= bounded


def test_values_come_sorted_with_the_moment_they_were_last_seen(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant, other = f"tenant-{uuid4()}", f"tenant-{uuid4()}"
    at_ns = int(NOON.timestamp()) * 10**9
    requests = ((tenant, "qwen", 0), (tenant, "llama", 5), (tenant, "qwen", 7), (other, "phi", 9))
    record(
        [
            RequestRecord(
                request_id=uuid4().bytes,
                started_at_ns=at_ns + seconds * 10**9,
                duration_ns=1,
                who=Identity(who),
                model=model,
            )
            for who, model, seconds in requests
        ]
    )
    seen = distinct(reader, "model", tenant)
    assert [one.value for one in seen] == ["llama", "qwen"]
    assert [(one.last_seen - NOON).total_seconds() for one in seen] == [5, 7]
    assert {tenant, other} <= {one.value for one in distinct(reader, "tenant")}
    assert distinct(reader, "team", tenant) == ()


def test_a_tenant_cannot_widen_the_question_by_its_name(reader: StoreClient) -> None:
    assert distinct(reader, "model", "' OR 1 = 1 --") == ()


def test_a_store_that_is_gone_is_unavailable() -> None:
    client = StoreClient(StoreAddress("http://127.0.0.1:1", "tollkeeper", "reader", ""))
    with pytest.raises(StoreUnavailable, match="http://127.0.0.1:1 does not answer"):
        overview(client, Scope(NOON, NOON.replace(hour=13)))


@pytest.mark.parametrize("read", [number_of, text_of, money_of, numbers_of])
def test_a_value_of_another_type_is_an_error_that_names_the_remedy(read: Callable[[object], Any]) -> None:
    with pytest.raises(UnexpectedRow, match="run `python -m migrations`"):
        read(None)


def test_every_part_that_queries_share_is_there_and_used() -> None:
    folder = Path(analytics.queries.__file__).parent / "sql"
    texts = [query(name) for name in query_names()]
    assert not [text for text in texts if "{{" in text]
    written = "".join(path.read_text() for path in (*folder.glob("*.sql"), *folder.glob("parts/*.sql")))
    parts = {path.stem for path in (folder / "parts").glob("*.sql")}
    assert parts and all(f"{{{{{part}}}}}" in written for part in parts)


def test_no_query_writes_the_kinds_of_tokens_out() -> None:
    folder = Path(analytics.queries.__file__).parent / "sql"
    naming = {
        path.stem for path in folder.rglob("*.sql") if re.search(r"tokens_(input|output|cache)_", path.read_text())
    }
    assert naming == OF_SOME_KINDS


def test_names_come_in_the_order_in_which_they_were_made(control_database: ControlDatabase) -> None:
    """So colours are given: what comes later takes none from what was there."""
    first = datetime(2026, 11, 1, tzinfo=UTC)
    with control_database.session() as session:
        for hours, name in enumerate(("zeta", "alpha")):
            author = Author("test", first + timedelta(hours=hours))
            create_tenant(session, author, name, name)
            create_team(session, author, name, f"team-{name}", "Team")
        assert made_in_order(session, "tenant") == ("zeta", "alpha")
        assert made_in_order(session, "tenant", "alpha") == ("alpha",)
        assert made_in_order(session, "team", "zeta") == ("team-zeta",)
        assert made_in_order(session, "provider") == ()
