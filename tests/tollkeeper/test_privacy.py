"""`tenants erase|export`, `users erase|export` and `retention`: what goes, what stays, and that the sums stay true."""

import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from typer.testing import CliRunner, Result

from backends.control.changes import Author, begin_change
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.rules import load_tenants
from backends.control.sound_rows import SoundRows
from backends.store.checks.check import check_store
from backends.store.columns import arrow_batch
from backends.store.store_locks import StoreLocks
from contracts.access.identity import Identity
from contracts.control import AuditEntry, Limit, Tenant
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import ATTEMPTS, CONTENT, ENGINE_STEPS, LOGS, REQUESTS, TRACES
from contracts.recording.records import AttemptRecord, ContentRecord, RequestRecord, StepRecord
from contracts.recording.telemetry import LogRow, SpanRow
from tollkeeper.cli import app

NS = 10**9
DAY_NS = 86_400 * NS
AUTHOR = Author("ada", datetime(2026, 11, 1, tzinfo=UTC))


def request(tenant: str, user: str, age_ns: int = 600 * NS) -> RequestRecord:
    at = time.time_ns() - age_ns
    return RequestRecord(
        request_id=uuid7(at).bytes,
        started_at_ns=at,
        duration_ns=NS,
        who=Identity(tenant, user=user, tags={"mail": f"{user}@example.org"}),
        model="tiny",
        usage=Usage(input_text=3, output_text=2),
        engine_output_tokens=2,
        cost_pico_usd=10**9,
        trace_id=uuid7(at).bytes,
        conversation_id=f"talk of {user}",
    )


def insert(client: Any, table: Any, *records: Any) -> None:
    client.insert_arrow(table.name, arrow_batch(table, records), deduplication_token=str(uuid7(time.time_ns())))


def span(tenant: str, trace_id: bytes, **attributes: str) -> SpanRow:
    return SpanRow(
        tenant, time.time_ns(), 1, trace_id, b"12345678", b"", "", "chat", "client", "app", {}, "", "", attributes,
        "ok", "", [], [], [], [], [], [], [],
    )  # fmt: skip


def fill(store: Any) -> dict[tuple[str, str], RequestRecord]:
    """Requests of two users of acme and of one of umbrella, a step that served all, spans, lines and what was said."""
    client = store.client()
    made = {key: request(*key) for key in (("acme", "ada"), ("acme", "bob"), ("umbrella", "ada"))}
    insert(client, REQUESTS, *made.values())
    insert(
        client,
        ATTEMPTS,
        *(
            AttemptRecord(
                request_id=one.request_id, number=1, started_at_ns=one.started_at_ns, duration_ns=1, who=one.who
            )
            for one in made.values()
        ),
    )
    step = StepRecord(
        engine="engine/1",
        sequence=1,
        started_at_ns=made["acme", "ada"].started_at_ns,
        busy_ns=3000,
        replica="one",
        method="m",
        request_ids=[one.request_id for one in made.values()],
        tenants=[tenant for tenant, _ in made],
        scheduled=[4, 4, 4],
        gpu_ns=[1000, 1000, 1000],
    )
    insert(client, ENGINE_STEPS, step)
    for (tenant, user), one in made.items():
        insert(client, TRACES, span(tenant, one.trace_id), span(tenant, b"", **{"enduser.id": user}))
        insert(
            client, LOGS, LogRow(tenant, time.time_ns(), 0, one.trace_id, b"", 0, "", 0, "", "", user, {}, {}, "", "")
        )
        said = ContentRecord(
            request_id=one.request_id,
            started_at_ns=one.started_at_ns,
            tenant=tenant,
            prompt=f"{user} of {tenant} said",
        )
        insert(client, CONTENT, said)
    client.close()
    return made


class Here:
    """Commands on one installation."""

    def __init__(self, store: Any, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.url = store, database_url
        for name, value in store.environment.items():
            if name.startswith("TOLLKEEPER_"):
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("TOLLKEEPER_DATABASE_URL", database_url)
        self.client = store.client()

    def run(self, *arguments: str) -> Result:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, result.output
        return result

    def count(self, asked: str) -> int:
        (row,) = self.client.query(f"SELECT {asked}")
        return int(str(next(iter(row.values()))))

    def is_sound(self) -> bool:
        report = check_store(self.client, StoreLocks(self.store.data), 24, print)
        assert report.findings == []
        return True


@pytest.fixture
def here(empty_store: Any, migrated_sqlite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    url = f"sqlite:///{shutil.copy(migrated_sqlite, tmp_path / 'control.db')}"
    return Here(empty_store, url, monkeypatch)


def test_an_end_user_is_erased_and_every_sum_stays(here: Here, tmp_path: Path) -> None:
    database = ControlDatabase(here.url)
    with database.session() as session:
        create_tenant(session, AUTHOR, "acme", "Acme")
    fill(here.store)
    here.client.command(
        "INSERT INTO feedback (tenant, request_id, name, source, author, score, comment, request_started_at, at) "
        "SELECT tenant, request_id, 'helpful', 'user', 'key_1', 1, concat('thanks, ', end_user), started_at, now64(3) "
        "FROM requests"
    )
    exported = here.run("users", "export", "acme", "ada", str(tmp_path / "ada"), "--json")
    assert json.loads(exported.stdout)["rows"] == {
        "store/attempts": 1, "store/content": 1, "store/feedback": 1, "store/logs": 1, "store/requests": 1,
        "store/traces": 2,
    }  # fmt: skip
    (said,) = (tmp_path / "ada" / "store" / "content.jsonl").read_text().splitlines()
    assert json.loads(said)["prompt"] == "ada of acme said"

    spent = here.count("toInt64(sum(cost_usd) * 1000000) FROM requests_day WHERE tenant = 'acme'")
    here.run("users", "erase", "acme", "ada", "--yes")
    everywhere = {"requests": "end_user", "attempts": "end_user", "logs": "body"}
    for table, column in everywhere.items():
        assert here.count(f"countIf({column} = 'ada') FROM {table} WHERE tenant = 'acme'") == 0, table
        assert here.count(f"countIf({column} = 'ada') FROM {table} WHERE tenant = 'umbrella'") == 1, table
        assert here.count(f"countIf({column} = 'bob') FROM {table}") == 1, table
    assert here.count("count() FROM requests WHERE tenant = 'acme'") == 2
    assert here.count("count() FROM requests WHERE positionCaseInsensitive(concat(toString(tags), conversation_id), 'ada') > 0 AND tenant = 'acme'") == 0  # fmt: skip  # noqa: E501
    assert here.count("count() FROM traces") == 4 and here.count("count() FROM content") == 2
    assert (
        here.count("count() FROM feedback") == 2 and here.count("countIf(comment = 'thanks, bob') FROM feedback") == 1
    )
    assert here.count("toInt64(sum(cost_usd) * 1000000) FROM requests_day WHERE tenant = 'acme'") == spent == 2000
    assert here.is_sound()
    database.close()


def test_a_tenant_is_erased_and_the_gpu_s_ledger_still_closes(here: Here, tmp_path: Path) -> None:
    database = ControlDatabase(here.url)
    with database.session() as session:
        for tenant in ("acme", "umbrella"):
            create_tenant(session, AUTHOR, tenant, tenant.title())
            session.add(Limit(id=f"lim_{tenant}", tenant_id=tenant, level="tenant", metric="requests", window="minute",
                              amount=5, created_at=AUTHOR.at, updated_at=AUTHOR.at))  # fmt: skip
        # What has a name of its own, and a tenant's name in it or beside it.
        begin_change(session, AUTHOR, "price.create", "acme-2026", {"model": "m", "tenant": "acme"})
        begin_change(session, AUTHOR, "issuer.create", "acme-login", {"tenant_id": "acme"})
        begin_change(session, AUTHOR, "issuer.delete", "acme-login")
    fill(here.store)
    exported = json.loads(here.run("tenants", "export", "acme", str(tmp_path / "acme"), "--json").stdout)["rows"]
    assert exported["control/tenants"] == 1 and exported["store/requests"] == 2 and exported["store/requests_day"] == 1

    gpu_ns = here.count("sum(gpu_ns) FROM engine_tenant_minutes")
    here.run("tenants", "erase", "acme", "--yes", "--grace-seconds", "0")
    named = here.client.query(
        "SELECT table FROM system.columns WHERE database = currentDatabase() AND name = 'tenant' "
        "AND table IN (SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree')"
    )
    for row in named:
        assert here.count(f"countIf(tenant = 'acme') FROM {row['table']}") == 0, row["table"]
    assert here.count("countIf(has(tenants, 'acme')) FROM engine_steps") == 0
    assert here.count("sum(gpu_ns) FROM engine_tenant_minutes") == gpu_ns == 3000
    assert here.count("sum(gpu_ns) FROM engine_tenant_minutes WHERE tenant = ''") == 2000
    assert here.count("count() FROM requests") == 1
    assert here.is_sound()
    with database.session() as session:
        assert session.scalars(select(Tenant.id)).all() == ["umbrella"]
        assert session.scalars(select(Limit.id)).all() == ["lim_umbrella"]
        assert "acme" not in " ".join(f"{one.subject} {one.detail}" for one in session.scalars(select(AuditEntry)))
    database.close()
    again = here.run("tenants", "erase", "acme", "--yes", "--json")
    assert json.loads(again.stdout)["erased_rows"] == {"store": 0, "objects": 0, "control": 0}


def test_a_tenant_s_rule_deletes_what_is_older_and_the_check_knows(here: Here) -> None:
    insert(here.client, REQUESTS, request("acme", "ada"), request("acme", "ada", 3 * DAY_NS))
    insert(here.client, REQUESTS, request("umbrella", "eve", 3 * DAY_NS))
    here.run("retention", "set", "requests", "--tenant", "acme", "--days", "2")
    assert "1 rows deleted" in here.run("retention", "apply").stdout
    assert here.count("count() FROM requests WHERE tenant = 'acme'") == 1
    assert here.count("count() FROM requests WHERE tenant = 'umbrella'") == 1
    assert here.count("sum(requests) FROM requests_day WHERE tenant = 'acme'") == 2, "sums are kept"
    assert here.is_sound()
    listed = json.loads(here.run("retention", "list", "--json").stdout)
    assert {"table": "requests", "tenant": "acme", "keeps": "2 days"} in listed
    here.run("retention", "set", "requests", "--tenant", "acme", "--default")
    assert "0 rows deleted" in here.run("retention", "apply").stdout

    here.run("retention", "set", "content", "--days", "3")
    (row,) = here.client.query(
        "SELECT engine_full FROM system.tables WHERE name = 'content' AND database = currentDatabase()"
    )
    assert "toIntervalDay(3)" in str(row["engine_full"])
    kept = {row["table"]: row["keeps"] for row in json.loads(here.run("retention", "list", "--json").stdout)}
    assert (kept["content"], kept["requests"], kept["requests_day"]) == ("3 days", "13 months", "forever")
    here.run("retention", "set", "content", "--days", "7")
    refused = CliRunner().invoke(app, ["retention", "set", "batch_claims", "--days", "1"])
    assert refused.exit_code == 2 and "holds no tenants' rows" in refused.stderr


@pytest.mark.parametrize(
    "arguments", [("tenants", "erase", ""), ("users", "erase", "demo", " "), ("users", "export", "", "u", "to")]
)
def test_an_empty_name_is_nobody_and_is_refused(data: Path, arguments: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(app, [*arguments, "--data", str(data), *(["--yes"] if "erase" in arguments else [])])
    assert refused.exit_code == 2 and "it is empty" in refused.output


def test_keeping_content_is_off_until_a_tenant_switches_it_on(data: Path) -> None:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--data", str(data), "--json"])

    def kept() -> bool:
        database = ControlDatabase(f"sqlite:///{data.parent / 'control.db'}")
        with database.session() as session:
            (tenant,) = load_tenants(SoundRows(session)).values()
        database.close()
        return tenant.keeps_content

    assert json.loads(run("tenants", "list").stdout)[0]["keeps_content"] is kept() is False
    assert json.loads(run("tenants", "content", "demo", "--keep").stdout)["keeps_content"] is kept() is True
    assert json.loads(run("tenants", "content", "demo", "--no-keep").stdout)["keeps_content"] is kept() is False
