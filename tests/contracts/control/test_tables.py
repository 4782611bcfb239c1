"""The control plane's declarations: complete, creatable on both databases, and exact in what they keep."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateIndex, CreateTable

from contracts.control import AdminToken, ApiKey, AuditEntry, Base, Price, Role, RoleGrant, StandardCost, Tenant, User
from contracts.control.base import ExactDecimal, UtcDateTime

NOW = datetime(2026, 11, 2, 12, 0, 0, 123_456, tzinfo=UTC)
SOME = settings(max_examples=80, deadline=None)
DIALECT = sqlite.dialect()


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


def standard_cost(price, version="v1"):
    return StandardCost(
        version=version,
        model="m",
        input_usd_per_mtok=price,
        cached_input_usd_per_mtok=price,
        output_usd_per_mtok=price,
        valid_from=NOW,
        created_at=NOW,
    )


def test_every_noun_has_its_table(engine):
    nouns = "tenants teams projects api_keys users role_grants budgets limits routes pools targets models prices"
    nouns += " standard_costs alerts slos audit admin_tokens revision"
    assert set(nouns.split()) <= set(inspect(engine).get_table_names())


@pytest.mark.parametrize("table", Base.metadata.sorted_tables, ids=lambda table: table.name)
def test_a_table_can_be_made_on_postgresql_and_its_constraints_can_be_dropped_by_name(table):
    dialect = postgresql.dialect()
    assert table.name in str(CreateTable(table).compile(dialect=dialect))
    for index in table.indexes:
        assert table.name in str(CreateIndex(index).compile(dialect=dialect))
    names = [str(constraint.name) for constraint in table.constraints] + [str(index.name) for index in table.indexes]
    assert "None" not in names
    assert all(len(name) <= 63 for name in names)  # PostgreSQL cuts longer ones off


# --- moments ---


def test_a_moment_without_a_time_zone_is_refused(session):
    session.add(Tenant(id="acme", name="Acme", created_at=datetime(2026, 11, 2)))
    with pytest.raises(StatementError, match="has no time zone; the control plane stores UTC"):
        session.flush()


def test_a_moment_comes_back_in_utc_to_the_microsecond(session):
    in_tokyo = NOW.astimezone(timezone(timedelta(hours=9)))
    session.add(Tenant(id="acme", name="Acme", created_at=in_tokyo))
    session.commit()
    kept = session.scalars(select(Tenant)).one().created_at
    assert kept == NOW
    assert kept.tzinfo is UTC
    assert session.scalars(select(Tenant).where(Tenant.created_at == in_tokyo)).one().id == "acme"
    assert session.scalars(select(Tenant).where(Tenant.created_at < NOW)).all() == []


def test_a_moment_that_is_not_set_stays_unset(session):
    session.add(Price(version="v1", model="m", card={}, valid_from=NOW, created_at=NOW))
    session.commit()
    assert session.scalars(select(Price)).one().valid_to is None


@SOME
@given(st.datetimes(min_value=datetime(1971, 1, 1), timezones=st.timezones()))
def test_what_either_database_gives_back_is_the_same_moment(moment):
    column = UtcDateTime()
    bound = column.process_bind_param(moment, DIALECT)
    assert bound is not None
    forgetful, faithful = bound.replace(tzinfo=None), bound.astimezone(timezone(timedelta(hours=-5)))
    for given_back in (forgetful, faithful):
        kept = column.process_result_value(given_back, DIALECT)
        assert kept == moment.astimezone(UTC)
        assert kept is not None
        assert kept.tzinfo is UTC


# --- decimals ---


@pytest.mark.parametrize(
    "text", ["18.75e-9", "0.00000001875", "0", "0.1", "999999.999999999999", "1e3", "-2.50", "1E-12"]
)
def test_a_price_comes_back_exactly(session, text):
    session.add(standard_cost(Decimal(text)))
    session.commit()
    session.expire_all()
    kept = session.scalars(select(StandardCost)).one().input_usd_per_mtok
    assert isinstance(kept, Decimal)
    assert kept == Decimal(text)


@SOME
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**18), max_value=10**18, places=18))
def test_a_decimal_survives_its_text(amount):
    column = ExactDecimal()
    text = column.process_bind_param(amount, DIALECT)
    assert text is not None
    assert len(text) <= 40
    assert "E" not in text
    assert column.process_result_value(text, DIALECT) == amount


@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-Infinity"])
def test_what_is_no_amount_is_refused(session, text):
    session.add(standard_cost(Decimal(text)))
    with pytest.raises(StatementError, match="is not an amount"):
        session.flush()


def test_a_decimal_too_long_for_postgresql_is_refused_on_sqlite_too():
    column = ExactDecimal()
    assert column.process_bind_param(Decimal("1" * 40), DIALECT) == "1" * 40
    for text in ("1" * 41, "-" + "1" * 40, "1e40", "1e999999", "1e-999999"):
        with pytest.raises(ValueError, match="does not fit in 40 characters"):
            column.process_bind_param(Decimal(text), DIALECT)
    assert column.process_bind_param(None, DIALECT) is None


# --- the rest ---


def test_roles_are_kept_as_the_words_they_are(session):
    session.add(User(id="u", email="a@b.example", created_at=NOW))
    session.add_all(RoleGrant(user_id="u", tenant_id=role.value, role=role) for role in Role)
    session.commit()
    rows = session.connection().exec_driver_sql("SELECT tenant_id, role FROM role_grants").all()
    assert {tuple(row) for row in rows} == {(role.value, role.value) for role in Role}
    assert {grant.role for grant in session.scalars(select(RoleGrant))} == set(Role)


def test_a_role_nobody_defined_is_refused(session):
    session.add(RoleGrant(user_id="u", tenant_id="", team_id="", role="emperor"))
    with pytest.raises(StatementError, match="emperor"):
        session.flush()


def test_no_two_keys_have_the_same_digest(session):
    session.add(Tenant(id="acme", name="Acme", created_at=NOW))
    for number in (1, 2):
        session.add(ApiKey(id=f"key_{number}", tenant_id="acme", name="k", digest="d", hint="abcd", created_at=NOW))
    with pytest.raises(IntegrityError):
        session.flush()


def test_a_secret_has_no_column_to_stand_in():
    for table in (ApiKey, AdminToken):
        assert "digest" in table.__table__.columns
        assert not {"key", "secret", "token"} & set(table.__table__.columns.keys())


def test_the_audit_numbers_its_own_entries(session):
    session.add_all(AuditEntry(at=NOW, actor="a", action="key.revoke", subject=name) for name in ("one", "two"))
    session.commit()
    assert [entry.id for entry in session.scalars(select(AuditEntry).order_by(AuditEntry.id))] == [1, 2]


def test_defaults_are_not_shared_between_rows(session):
    session.add_all(Tenant(id=name, name=name, created_at=NOW) for name in ("acme", "globex"))
    session.commit()
    acme, globex = session.scalars(select(Tenant).order_by(Tenant.id)).all()
    assert (acme.settings, acme.weight, acme.is_active, acme.time_zone) == ({}, 1, True, "UTC")
    assert acme.settings is not globex.settings
