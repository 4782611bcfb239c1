"""Tenants, teams and projects over each control database."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control import organisation
from backends.control.accounts import NewUser, create_user, delete_user
from backends.control.admin_tokens import NewToken, create_token, revoke_token
from backends.control.changes import Author, read_revision
from backends.control.database import ControlDatabase
from backends.control.keys import KeyRequest, create_key, revoke_key
from backends.control.organisation import TenantChange
from contracts.access.keys import new_key
from contracts.control import AuditEntry, Role
from contracts.errors import Conflict, NotFound

AUTHOR = Author(name="admin", at=datetime(2026, 11, 3, 12, 0, 0, 123456, tzinfo=UTC), address="192.0.2.7")


def test_a_tenant_reads_back_as_it_was_written(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Acme Ünlimited", time_zone="Europe/Berlin", weight=3)
    with control_database.session() as session:
        tenant = organisation.get_tenant(session, "acme")
        assert (tenant.name, tenant.time_zone, tenant.weight, tenant.is_active) == (
            "Acme Ünlimited",
            "Europe/Berlin",
            3,
            True,
        )
        assert tenant.created_at == AUTHOR.at


def test_a_taken_id_is_refused_and_changes_nothing(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "First")
    with control_database.session() as session:
        before = read_revision(session)
    with pytest.raises(Conflict, match="tenant 'acme' exists already"), control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Second")
    with control_database.session() as session:
        assert organisation.get_tenant(session, "acme").name == "First"
        assert read_revision(session) == before
        assert len(session.scalars(select(AuditEntry)).all()) == 1


def test_every_change_raises_the_revision_by_one_and_leaves_one_audit_entry(control_database: ControlDatabase) -> None:
    changes: list[Callable[[Session], object]] = [
        lambda session: organisation.create_tenant(session, AUTHOR, "acme", "Acme"),
        lambda session: organisation.update_tenant(session, AUTHOR, "acme", TenantChange(weight=2)),
        lambda session: organisation.create_team(session, AUTHOR, "acme", "search", "Search"),
        lambda session: organisation.create_project(session, AUTHOR, "acme", "search", "ranking", "Ranking"),
        lambda session: organisation.rename_project(session, AUTHOR, "acme", "search", "ranking", "Order"),
        lambda session: organisation.delete_project(session, AUTHOR, "acme", "search", "ranking"),
        lambda session: organisation.rename_team(session, AUTHOR, "acme", "search", "Find"),
        lambda session: organisation.delete_team(session, AUTHOR, "acme", "search"),
    ]
    with control_database.session() as session:
        start = read_revision(session)
    for count, change in enumerate(changes, start=1):
        with control_database.session() as session:
            change(session)
        with control_database.session() as session:
            assert read_revision(session) == start + count
            entries = session.scalars(select(AuditEntry).order_by(AuditEntry.id)).all()
            assert len(entries) == count
            assert (entries[-1].actor, entries[-1].address, entries[-1].at) == ("admin", "192.0.2.7", AUTHOR.at)
    with control_database.session() as session:
        actions = session.scalars(select(AuditEntry.action).order_by(AuditEntry.id)).all()
        assert actions[:2] == ["tenant.create", "tenant.update"]


def test_reading_does_not_raise_the_revision(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Acme")
    with control_database.session() as session:
        before = read_revision(session)
        organisation.list_tenants(session)
        organisation.list_teams(session, "acme")
    with control_database.session() as session:
        assert read_revision(session) == before


def test_what_is_unknown_is_named(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Acme")
        with pytest.raises(NotFound, match="tenant 'nobody' does not exist"):
            organisation.get_tenant(session, "nobody")
        with pytest.raises(NotFound, match="tenant 'nobody' does not exist"):
            organisation.list_teams(session, "nobody")
        with pytest.raises(NotFound, match="tenant 'acme' has no team 'search'"):
            organisation.list_projects(session, "acme", "search")


def test_lists_are_read_in_pages_in_the_order_of_ids(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        for tenant in ("c", "a", "d", "b"):
            organisation.create_tenant(session, AUTHOR, tenant, tenant)
    with control_database.session() as session:
        assert [tenant.id for tenant in organisation.list_tenants(session, limit=2)] == ["a", "b"]
        assert [tenant.id for tenant in organisation.list_tenants(session, after="b", limit=2)] == ["c", "d"]
        assert organisation.list_tenants(session, after="d") == []


def test_a_team_with_a_key_in_use_is_not_deleted(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Acme")
        organisation.create_team(session, AUTHOR, "acme", "search", "Search")
        organisation.create_project(session, AUTHOR, "acme", "search", "ranking", "Ranking")
        wanted = KeyRequest("acme", "app", team_id="search", project_id="ranking")
        key = create_key(session, AUTHOR, wanted, new_key(bytes(32)), b"pepper")
    with pytest.raises(Conflict, match="has keys in use"), control_database.session() as session:
        organisation.delete_team(session, AUTHOR, "acme", "search")
    with pytest.raises(Conflict, match="has keys in use"), control_database.session() as session:
        organisation.delete_project(session, AUTHOR, "acme", "search", "ranking")
    with control_database.session() as session:
        revoke_key(session, AUTHOR, "acme", key.id)
        organisation.delete_team(session, AUTHOR, "acme", "search")
    with control_database.session() as session:
        assert organisation.list_teams(session, "acme") == []
        with pytest.raises(NotFound):
            organisation.get_project(session, "acme", "search", "ranking")


def test_a_team_is_not_deleted_while_people_or_tokens_are_bound_to_it(control_database: ControlDatabase) -> None:
    lead = NewUser("ada@example.com", "Ada", Role.TEAM_LEAD, "acme", "search")
    wanted = NewToken("app", Role.TEAM_LEAD, "acme", "search")
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Acme")
        organisation.create_team(session, AUTHOR, "acme", "search", "Search")
        create_user(session, AUTHOR, Role.OWNER, lead)
        token = create_token(session, AUTHOR, Role.OWNER, wanted, new_key(bytes(32)), b"pepper")
    with pytest.raises(Conflict, match="has accounts bound to it"), control_database.session() as session:
        organisation.delete_team(session, AUTHOR, "acme", "search")
    with control_database.session() as session:
        delete_user(session, AUTHOR, Role.OWNER, lead.email)
    with (
        pytest.raises(Conflict, match=f"admin tokens bound to it, {token.id}"),
        control_database.session() as again,
    ):
        organisation.delete_team(again, AUTHOR, "acme", "search")
    with control_database.session() as session:
        revoke_token(session, AUTHOR, Role.OWNER, token.id)
        organisation.delete_team(session, AUTHOR, "acme", "search")
