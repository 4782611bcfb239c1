"""Limits in the control database, and what of them, of budgets and of queues reaches the data plane."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from backends.control import budgets, limits, organisation, serving
from backends.control.budgets import NewBudget
from backends.control.changes import Author, read_revision
from backends.control.database import ControlDatabase
from backends.control.limits import LimitChange, NewLimit
from backends.control.serving import NewTarget
from backends.control.snapshot import load_snapshot
from contracts.control import AuditEntry, Limit
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.rules.limits import QueueSpec, TenantSpec

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AUTHOR = Author(name="admin", at=NOW)
PER_MINUTE = NewLimit("acme", "tenant", "tokens", amount=1000, window="minute")


@pytest.fixture
def database(control_database: ControlDatabase) -> Iterator[ControlDatabase]:
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Acme", time_zone="Europe/Berlin", weight=3)
        organisation.create_team(session, AUTHOR, "acme", "search", "Search")
        organisation.create_project(session, AUTHOR, "acme", "search", "ranking", "Ranking")
        serving.create_pool(session, AUTHOR, "pool")
        serving.create_target(session, AUTHOR, "pool", NewTarget("one", "scripted"))
        serving.create_model(session, AUTHOR, "small", "pool")
    yield control_database


def made(database: ControlDatabase, new: NewLimit) -> Limit:
    with database.session() as session:
        return limits.create_limit(session, AUTHOR, new)


def test_limits_reach_the_data_plane_in_base_units(database: ControlDatabase) -> None:
    tokens = made(database, replace(PER_MINUTE, level="project", subject="search/ranking", model="small"))
    money = NewLimit("acme", "user", "usd", amount_usd=Decimal("0.000000000001"), window="day", subject="*")
    made(database, replace(money, when_away="refuse", when_unpriced="allow"))
    made(database, NewLimit("acme", "tag", "gpu_ms", amount=3, window="hour", subject="env=*"))
    made(database, NewLimit("acme", "conversation", "requests", amount=9, subject="*"))
    made(database, NewLimit("acme", "tenant", "concurrency", amount=0))
    with database.session() as session:
        snapshot = load_snapshot(session)
    assert snapshot.misconfigured == ()
    assert tokens.id.startswith("lim_") and tokens.id in {spec.id for spec in snapshot.limits}
    found = {spec.scope.level: spec for spec in snapshot.limits}
    assert (found["project"].metric, found["project"].amount, found["project"].scope.model) == ("tokens", 1000, "small")
    assert (found["user"].metric, found["user"].amount) == ("pico_usd", 1)
    assert (found["user"].when_away, found["user"].when_unpriced) == ("refuse", "allow")
    assert (found["tag"].metric, found["tag"].amount) == ("gpu_ns", 3_000_000)
    assert found["conversation"].window is None and found["conversation"].scope.subject == ""
    assert found["tenant"].amount == 0
    assert snapshot.tenants["acme"] == TenantSpec("acme", 3, "Europe/Berlin")


def test_a_second_limit_of_the_same_scope_metric_and_window_is_refused(database: ControlDatabase) -> None:
    first = made(database, PER_MINUTE)
    for twin in (PER_MINUTE, replace(PER_MINUTE, subject="*", amount=5)):
        with pytest.raises(Conflict, match=f"{first.id}.*1000 tokens per minute.*change that one"):
            made(database, twin)
    made(database, replace(PER_MINUTE, metric="input_tokens"))
    made(database, replace(PER_MINUTE, model="small"))


@pytest.mark.parametrize(("per_hour", "is_refused"), [(999, True), (1000, False), (1001, False)])
def test_a_wider_window_may_not_allow_less(database: ControlDatabase, per_hour: int, is_refused: bool) -> None:
    made(database, PER_MINUTE)
    wider = replace(PER_MINUTE, window="hour", amount=per_hour)
    if not is_refused:
        made(database, wider)
        return
    with pytest.raises(Conflict, match="999 tokens per hour, less than the 1000 tokens per minute"):
        made(database, wider)
    row = made(database, replace(wider, amount=2000))
    with pytest.raises(Conflict, match="less than"), database.session() as session:
        limits.update_limit(session, AUTHOR, "acme", row.id, LimitChange(amount=per_hour))
    with database.session() as session:
        assert limits.get_limit(session, "acme", row.id).amount == 2000


def test_a_change_is_audited_with_what_was_before(database: ControlDatabase) -> None:
    row = made(database, PER_MINUTE)
    with database.session() as session:
        before = read_revision(session)
        limits.update_limit(session, AUTHOR, "acme", row.id, LimitChange(amount=2000, when_away="refuse"))
        assert read_revision(session) == before + 1
    with database.session() as session:
        limits.delete_limit(session, AUTHOR, "acme", row.id)
    with database.session() as session:
        entries = session.scalars(select(AuditEntry).where(AuditEntry.action.startswith("limit.")))
        created, updated, deleted = sorted(entries, key=lambda entry: entry.id)
        assert limits.list_limits(session, "acme") == []
    in_doubt = {"when_away": "share", "when_unpriced": "refuse"}
    changed = {"amount": 2000, "when_away": "refuse", "when_unpriced": "refuse"}
    assert created.detail["after"] == {"amount": 1000, **in_doubt} and created.detail["window"] == "minute"
    assert (updated.detail["before"], updated.detail["after"]) == ({"amount": 1000, **in_doubt}, changed)
    assert deleted.detail["before"] == changed and deleted.subject == f"acme/{row.id}"


def test_limits_of_another_tenant_are_not_found(database: ControlDatabase) -> None:
    row = made(database, PER_MINUTE)
    with database.session() as session:
        organisation.create_tenant(session, AUTHOR, "globex", "Globex")
    for work in (limits.get_limit, lambda s, t, i: limits.delete_limit(s, AUTHOR, t, i)):
        with pytest.raises(NotFound, match="'globex' has no limit"), database.session() as session:
            work(session, "globex", row.id)


@pytest.mark.parametrize(
    ("changes", "param", "words"),
    [
        ({"level": "planet"}, "level", "known: tenant, team"),
        ({"level": "team", "subject": "none"}, "subject", "'none'.*no such team"),
        ({"level": "project", "subject": "search/none"}, "subject", "no such project"),
        ({"level": "project", "subject": "ranking"}, "subject", "'team/project'"),
        ({"level": "key", "subject": "key_none"}, "subject", "no such key"),
        ({"level": "tag", "subject": "env"}, "subject", "name=value"),
        ({"level": "tag", "subject": "=x"}, "subject", "name=value"),
        ({"level": "user"}, "subject", "needs a subject"),
        ({"subject": "acme"}, "subject", "takes no subject"),
        ({"model": "none"}, "model", "not a model, route or MCP tool"),
        ({"metric": "joules"}, "metric", "'joules' is unknown"),
        ({"metric": "concurrency"}, "window", "takes no window"),
        ({"window": None}, "window", "needs a window"),
        ({"level": "conversation"}, "window", "leave window out"),
        ({"amount": -1}, "amount", "0 to"),
        ({"amount": 10**18}, "amount", str(10**18 - 1)),
        ({"amount": None}, "amount", "whole number in amount"),
        ({"metric": "usd"}, "amount_usd", "decimal text"),
        ({"metric": "gpu_ms", "amount": 10**12}, "amount", "at most 999999999999"),
    ],
)
def test_what_no_limit_can_be_is_refused_by_name(
    database: ControlDatabase, changes: dict[str, object], param: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        made(database, replace(PER_MINUTE, **changes))  # type: ignore[arg-type]  # wrong on purpose
    assert refused.value.param == param
    with database.session() as session:
        assert limits.list_limits(session, "acme") == []


@pytest.mark.parametrize(
    "values",
    [
        "'planet', '', 'tokens', 'minute', 5, NULL",
        "'tenant', '', 'tokens', 'week', 5, NULL",
        "'tenant', '', 'tokens', 'minute', -1, NULL",
        "'tenant', '', 'tokens', 'minute', 1000000000000000000, NULL",
        "'tenant', '', 'tokens', 'minute', NULL, NULL",
        "'tenant', '', 'tokens', 'minute', 5, '5'",
        "'tenant', '', 'usd', 'minute', 5, NULL",
        "'tenant', '', 'usd', 'minute', NULL, '-0.1'",
        "'tenant', '', 'tokens', '', 5, NULL",
        "'tenant', '', 'concurrency', 'minute', 5, NULL",
        "'conversation', '', 'tokens', 'minute', 5, NULL",
    ],
)
def test_the_database_itself_keeps_no_such_limit(database: ControlDatabase, values: str) -> None:
    columns = 'level, subject, metric, "window", amount, amount_usd'
    statement = (
        f"INSERT INTO limits (id, tenant_id, model, when_away, when_unpriced, created_at, updated_at, {columns}) "
        f"VALUES ('lim_1', 'acme', '', 'share', 'refuse', '2026-01-01', '2026-01-01', {values})"
    )
    with pytest.raises(IntegrityError), database.engine.begin() as connection:
        connection.execute(text(statement))


def test_a_limit_on_a_metric_that_this_version_does_not_know_is_left_out_and_named(database: ControlDatabase) -> None:
    good, newer = made(database, PER_MINUTE), made(database, replace(PER_MINUTE, window="hour"))
    with database.session() as session:
        session.execute(text("UPDATE limits SET metric = 'joules' WHERE id = :id"), {"id": newer.id})
    with database.session() as session:
        snapshot = load_snapshot(session)
    assert [limit.id for limit in snapshot.limits] == [good.id]
    (fault,) = snapshot.misconfigured
    assert f"limit '{newer.id}' is left out" in fault and "metric 'joules' is unknown" in fault


def test_a_rule_that_someone_broke_is_left_out_and_named(database: ControlDatabase) -> None:
    good, bad = made(database, PER_MINUTE), made(database, replace(PER_MINUTE, window="hour"))
    with database.session() as session:
        budget = budgets.create_budget(session, AUTHOR, NewBudget("acme", "tenant", "month", Decimal(1)))
        serving.set_pool_queue(session, AUTHOR, "pool", {"max_waiting": 5})
    with database.session() as session:
        session.execute(text("UPDATE limits SET level = 'user' WHERE id = :id"), {"id": bad.id})
        finer = {"id": budget.id, "finer": "0.0000000000001"}
        session.execute(text("UPDATE budgets SET amount_usd = :finer WHERE id = :id"), finer)
        as_json = "CAST(:queue AS JSON)" if database.url.get_backend_name() == "postgresql" else ":queue"
        session.execute(text(f"UPDATE pools SET settings = {as_json}"), {"queue": '{"queue": {"max_waiting": 0}}'})
    with database.session() as session:
        snapshot = load_snapshot(session)
    assert [limit.id for limit in snapshot.limits] == [good.id]
    assert snapshot.budgets == ()
    assert snapshot.pools["pool"].queue is None and "small" in snapshot.models
    faults = "\n".join(snapshot.misconfigured)
    assert f"limit '{bad.id}' is left out" in faults and "needs a subject" in faults
    assert f"budget '{budget.id}' is left out" in faults and "finer than a pico-USD" in faults
    assert "queue of pool 'pool' is left out" in faults and "max_waiting" in faults


def test_a_pools_queue_is_set_taken_away_and_audited(database: ControlDatabase) -> None:
    with database.session() as session:
        serving.set_pool_queue(session, AUTHOR, "pool", {"max_in_flight": 4, "deadline_seconds": {"batch": 60}})
    with database.session() as session:
        queue = load_snapshot(session).pools["pool"].queue
        assert queue == QueueSpec(max_in_flight=4, deadline_seconds={"batch": 60})
    for wrong in ({"max_in_flight": 0}, {"tenant_max_tokens": 2.0}, {"lanes": 3}):
        with pytest.raises(InvalidRequest) as refused, database.session() as session:
            serving.set_pool_queue(session, AUTHOR, "pool", wrong)
        assert refused.value.param == "queue"
    with database.session() as session:
        serving.set_pool_queue(session, AUTHOR, "pool", None)
        assert load_snapshot(session).pools["pool"].queue is None
        entry = session.scalars(select(AuditEntry).order_by(AuditEntry.id.desc())).first()
        assert entry is not None and entry.action == "pool.update"
        assert entry.detail["before"] == {"queue": {"max_in_flight": 4, "deadline_seconds": {"batch": 60}}}
        assert entry.detail["after"] == {"queue": None}
