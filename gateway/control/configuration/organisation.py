"""Tenants, teams, projects and keys as configuration."""

import os
from collections.abc import Iterable
from typing import Final

from pydantic import Field
from sqlalchemy import select

from backends.control import keys as stored
from backends.control.keys import KeyRequest
from contracts.access.keys import KEY_RANDOM_BYTES, digest_of, is_well_formed, new_key
from contracts.control import ApiKey, Project, Team, Tenant
from contracts.errors import InvalidRequest
from gateway.config.entries import ConfiguredKey, ConfiguredTenant
from gateway.control import projects, teams, tenants
from gateway.control.configuration.kind import Change, Context, EntryT, ExistingObject, Kind
from gateway.control.fields import Slug
from gateway.control.projects import ProjectBody, ProjectPatch
from gateway.control.teams import TeamBody, TeamPatch
from gateway.control.tenants import TenantBody, TenantPatch

_DIGEST: Final = "digest:"  # begins what stands for the secret of a key that is there
_SWITCHES: Final = ("weight", "time_zone", "is_active", "keeps_content", "audits_requests")


class _Named(Kind[EntryT]):
    """An object with a display name, by default its id."""

    def completed(self, context: Context, entry: EntryT, before: EntryT) -> EntryT:
        fields = entry.model_dump(include={"id", "name"})
        return entry.model_copy(update={"name": ""}) if fields["name"] == fields["id"] else entry


class Tenants(_Named[ConfiguredTenant]):
    """Tenants. A removed one is deactivated, and its rows are kept for reports and invoices."""

    section, noun, entry = "tenants", "tenant", ConfiguredTenant

    def identity(self, entry: ConfiguredTenant) -> str:
        return entry.id

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredTenant]]:
        for row in context.session.scalars(select(Tenant).order_by(Tenant.id)):
            name = "" if row.name == row.id else row.name
            entry = ConfiguredTenant(id=row.id, name=name, **{each: getattr(row, each) for each in _SWITCHES})
            yield ExistingObject(entry, is_prunable=row.is_active)

    def create(self, context: Context, entry: ConfiguredTenant) -> None:
        body = TenantBody(id=entry.id, name=entry.name or entry.id, time_zone=entry.time_zone, weight=entry.weight)
        tenants.create(body, context.author, context.database)
        switched = {
            each for each in ("is_active", "keeps_content", "audits_requests") if each in entry.model_fields_set
        }
        if switched:
            self.change(context, Change(entry, entry, entry, frozenset(switched)))

    def change(self, context: Context, change: Change[ConfiguredTenant]) -> None:
        entry = change.after
        wanted = {each: getattr(entry, each) for each in change.fields}
        if "name" in wanted:
            wanted["name"] = entry.name or entry.id
        tenants.update(entry.id, TenantPatch(**wanted), context.author, context.database)

    def delete(self, context: Context, entry: ConfiguredTenant) -> None:
        tenants.deactivate(entry.id, context.author, context.database)


class TeamEntry(TeamBody):
    """A team of a tenant."""

    tenant: Slug
    name: str = Field(default="", max_length=200, description="Display name (default: the id)")


class Teams(_Named[TeamEntry]):
    """Groups within a tenant."""

    section, noun, entry = "teams", "team", TeamEntry

    def identity(self, entry: TeamEntry) -> str:
        return f"{entry.tenant}/{entry.id}"

    def current(self, context: Context) -> Iterable[ExistingObject[TeamEntry]]:
        for row in context.session.scalars(select(Team).order_by(Team.tenant_id, Team.id)):
            yield ExistingObject(
                TeamEntry(tenant=row.tenant_id, id=row.id, name="" if row.name == row.id else row.name)
            )

    def create(self, context: Context, entry: TeamEntry) -> None:
        body = TeamBody(id=entry.id, name=entry.name or entry.id)
        teams.create(entry.tenant, body, context.author, context.database)

    def change(self, context: Context, change: Change[TeamEntry]) -> None:
        entry = change.after
        body = TeamPatch(name=entry.name or entry.id)
        teams.rename(entry.tenant, entry.id, body, context.author, context.database)

    def delete(self, context: Context, entry: TeamEntry) -> None:
        teams.delete(entry.tenant, entry.id, context.author, context.database)


class ProjectEntry(ProjectBody):
    """A project of a team."""

    tenant: Slug
    team: Slug
    name: str = Field(default="", max_length=200, description="Display name (default: the id)")


class Projects(_Named[ProjectEntry]):
    """Projects of a team."""

    section, noun, entry = "projects", "project", ProjectEntry

    def identity(self, entry: ProjectEntry) -> str:
        return f"{entry.tenant}/{entry.team}/{entry.id}"

    def current(self, context: Context) -> Iterable[ExistingObject[ProjectEntry]]:
        order = (Project.tenant_id, Project.team_id, Project.id)
        for row in context.session.scalars(select(Project).order_by(*order)):
            name = "" if row.name == row.id else row.name
            yield ExistingObject(ProjectEntry(tenant=row.tenant_id, team=row.team_id, id=row.id, name=name))

    def create(self, context: Context, entry: ProjectEntry) -> None:
        body = ProjectBody(id=entry.id, name=entry.name or entry.id)
        projects.create(entry.tenant, entry.team, body, context.author, context.database)

    def change(self, context: Context, change: Change[ProjectEntry]) -> None:
        entry = change.after
        body = ProjectPatch(name=entry.name or entry.id)
        projects.rename(entry.tenant, entry.team, entry.id, body, context.author, context.database)

    def delete(self, context: Context, entry: ProjectEntry) -> None:
        projects.delete(entry.tenant, entry.team, entry.id, context.author, context.database)


class Keys(Kind[ConfiguredKey]):
    """Keys of applications, by id, or by tenant and name. A new one without `key` gets a secret, shown once."""

    section, noun, entry = "keys", "key", ConfiguredKey
    secrets = ("key",)
    fixed = ("team", "project", "is_service_account")

    def identity(self, entry: ConfiguredKey) -> str:
        return f"{entry.tenant}/{entry.id or entry.name}"

    def names(self, entry: ConfiguredKey) -> tuple[str, ...]:
        by_name = f"{entry.tenant}/name:{entry.name}"
        if entry.id:
            return (self.identity(entry), by_name) if entry.key.startswith(_DIGEST) else (self.identity(entry),)
        return (by_name,)

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredKey]]:
        rows = select(ApiKey).where(ApiKey.revoked_at.is_(None)).order_by(ApiKey.tenant_id, ApiKey.id)
        for row in context.session.scalars(rows):
            scopes = {name: value for name, value in row.scopes.items() if value is not None}
            yield ExistingObject(
                ConfiguredKey(
                    key=f"{_DIGEST}{row.digest}",
                    id=row.id,
                    name=row.name,
                    tenant=row.tenant_id,
                    team=row.team_id,
                    project=row.project_id,
                    expires_at=row.expires_at,
                    is_service_account=row.is_service_account,
                    **scopes,  # type: ignore[arg-type]
                )
            )

    def completed(self, context: Context, entry: ConfiguredKey, before: ConfiguredKey) -> ConfiguredKey:
        kept = {name: getattr(before, name) for name in ("id", "name") if not getattr(entry, name)}
        kept["key"] = f"{_DIGEST}{digest_of(entry.key, context.pepper).hex()}" if entry.key else before.key
        return entry.model_copy(update=kept | _sorted_scopes(entry))

    def create(self, context: Context, entry: ConfiguredKey) -> None:
        if not entry.name and not entry.id:
            raise InvalidRequest("a key needs a name or an id", param="name")
        secret = entry.key or new_key(os.urandom(KEY_RANDOM_BYTES))
        if not is_well_formed(secret):
            raise InvalidRequest("the key is malformed; keys are 'tk-' and 43 letters, digits, '-' or '_'", param="key")
        wanted = KeyRequest(
            tenant_id=entry.tenant,
            name=entry.name or entry.id,
            id=entry.id,
            team_id=entry.team,
            project_id=entry.project,
            expires_at=entry.expires_at,
            is_service_account=entry.is_service_account,
            **_scopes(entry),  # type: ignore[arg-type]
        )
        made = stored.create_key(context.session, context.author, wanted, secret, context.pepper)
        if not entry.key:
            context.issued.append({"tenant": entry.tenant, "name": made.name, "id": made.id, "secret": secret})

    def change(self, context: Context, change: Change[ConfiguredKey]) -> None:
        entry, key_id = change.after, change.before.id
        wanted = {"name": entry.name, "expires_at": entry.expires_at, **_scopes(entry)}
        stated = {name: value for name, value in wanted.items() if name in change.fields}
        if stated:
            stored.update_key(context.session, context.author, entry.tenant, key_id, stated)
        if "key" in change.fields:  # the file refers to another secret; the former one ends at once
            stored.rotate_key(
                context.session,
                context.author,
                entry.tenant,
                key_id,
                secret=change.given.key,
                pepper=context.pepper,
                overlap_seconds=0,
            )

    def delete(self, context: Context, entry: ConfiguredKey) -> None:
        stored.revoke_key(context.session, context.author, entry.tenant, entry.id)


def _scopes(entry: ConfiguredKey) -> dict[str, object]:
    return {
        "models": entry.models,
        "endpoints": entry.endpoints,
        "addresses": entry.addresses,
        "priority": None if entry.priority == "standard" else entry.priority,
        "max_reasoning_effort": entry.max_reasoning_effort,
        "max_thinking_tokens": entry.max_thinking_tokens,
    }


def _sorted_scopes(entry: ConfiguredKey) -> dict[str, object]:
    lists = {name: getattr(entry, name) for name in ("models", "endpoints", "addresses")}
    return {name: sorted(set(value)) for name, value in lists.items() if value is not None}
