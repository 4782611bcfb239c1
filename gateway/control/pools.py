"""Pools and their targets over HTTP: the replicas that serve models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import (
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from backends.control import serving
from backends.control.rules import FAILURES_SETTING, QUEUE_SETTING
from backends.control.serving import NewTarget
from backends.http_client.http_origin import Origin
from backends.llm.stored_settings import check_settings
from backends.secrets.credential_references import ReferenceRules
from backends.web.invalid_input import describe_invalid
from contracts.control import Pool
from contracts.errors import ConfigurationError, InvalidRequest
from contracts.serving.configuration import TargetSpec
from contracts.serving.pool_choices import PolicyName, TargetKind
from gateway.config.fields.failure_fields import FailureFields
from gateway.config.fields.queue_fields import QueueFields
from gateway.control.access import Admin
from gateway.control.fields import (
    Body,
    Database,
    Deleted,
    Page,
    References,
    Region,
    Resource,
    Slug,
    Wanted,
    list_of,
    page_of,
)

router = APIRouter(prefix="/v1/pools", tags=["pools"])

PoolPath = Annotated[str, Path(max_length=63, description="The pool's id")]
TargetPath = Annotated[str, Path(max_length=63, description="The target's id")]
TargetUrl = Annotated[
    str, StringConstraints(pattern=r"^((https?|tcp)://[^\s/?#]+[^\s?#]*|unix:///[^\s?#]+)?$", max_length=500)
]
KeyRef = Annotated[
    str,
    StringConstraints(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+|stored:[a-z0-9][a-z0-9-]*)?$", max_length=200),
]


Provider = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_.-]*$", max_length=63)]


class PoolBody(Body):
    """A new pool."""

    id: Slug
    policy: PolicyName = "cost"
    region: Region = ""


class PoolPatch(Body):
    """Fields to change; at least one. `queue` and `failures` are each replaced whole."""

    policy: PolicyName | None = Field(default=None, description="Routing policy; null: unchanged")
    region: Region | None = Field(default=None, description="Region of its targets; null: unchanged")
    queue: QueueFields | None = Field(default=None, description="Queue settings; null: defaults")
    failures: FailureFields | None = Field(default=None, description="Failure settings; null: defaults")

    @model_validator(mode="after")
    def _check_said(self) -> Self:
        stated = (self.policy, self.region)
        if stated == (None, None) and self.model_fields_set.isdisjoint(("queue", "failures")):
            raise ValueError("nothing to change; give policy, region, queue or failures")
        return self


class TargetBody(Body):
    """A new target of a pool."""

    id: Slug
    kind: TargetKind
    url: TargetUrl = Field(
        default="",
        description="URL of an openai_http target, with /v1; for an engine host unix:///path.sock; "
        "for litellm in place of the provider's own, mostly empty",
    )
    model: str = Field(
        default="", max_length=200, description="Model name at the target; empty: the name that applications use"
    )
    provider: Provider = ""
    key_ref: KeyRef = Field(default="", description="Reference to the credential: env:NAME, file:/PATH, or stored:NAME")
    weight: int = Field(default=1, ge=1, le=1000)
    settings: dict[str, JsonValue] = Field(default_factory=dict, max_length=50)

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        if self.kind == "openai_http" and not self.url:
            raise ValueError("an openai_http target needs a url such as http://127.0.0.1:8000/v1")
        if self.kind == "openai_http" and not self.url.startswith("http"):
            raise ValueError("an openai_http target's url begins with http:// or https://")
        if self.kind == "engine" and not self.url.startswith(("unix://", "tcp://")):
            raise ValueError("an engine target needs a url such as unix:///path/run/engine-default.sock")
        if self.kind == "litellm" and "/" not in self.model:
            raise ValueError("a litellm target needs a model with its provider, such as anthropic/claude-sonnet-4-5")
        if self.kind == "litellm" and self.url and not self.url.startswith("http"):
            raise ValueError("a litellm target's url begins with http:// or https://, or is empty")
        if self.url.startswith("http"):
            try:
                Origin.parse(self.url)
            except ConfigurationError as error:
                raise ValueError(error.message) from error
        return self


class TargetPatch(Body):
    """Fields to change; at least one. Absent fields stay; `settings` is replaced as a whole."""

    kind: TargetKind | None = None
    url: TargetUrl | None = None
    model: str | None = Field(default=None, max_length=200)
    provider: Provider | None = None
    key_ref: KeyRef | None = None
    weight: int | None = Field(default=None, ge=1, le=1000)
    settings: dict[str, JsonValue] | None = Field(default=None, max_length=50)

    @model_validator(mode="after")
    def _check_said(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError(f"nothing to change; give one of {', '.join(TargetPatch.model_fields)}")
        return self


class TargetOut(Resource):
    """A target. Its credential is never shown, only the reference to it."""

    id: str
    kind: str
    url: str
    model: str
    provider: str
    key_ref: str
    weight: int
    settings: dict[str, JsonValue]


class PoolOut(Resource):
    """A pool."""

    id: str
    policy: str
    region: str
    queue: dict[str, JsonValue] | None = Field(validation_alias="settings", description="null: defaults")
    failures: dict[str, JsonValue] | None = Field(validation_alias="settings", description="null: defaults")
    created_at: datetime

    @field_validator("queue", "failures", mode="before")
    @classmethod
    def _of_settings(cls, settings: Mapping[str, object], info: ValidationInfo) -> object:
        return settings.get(QUEUE_SETTING if info.field_name == "queue" else FAILURES_SETTING)


@router.post("", status_code=201, summary="Create a pool")
def create(body: PoolBody, author: Admin, database: Database) -> PoolOut:
    with database.session() as session:
        pool: Pool = serving.create_pool(session, author, body.id, policy=body.policy, region=body.region)
        return PoolOut.model_validate(pool)


@router.get("", summary="List pools")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[PoolOut]:
    with database.session() as session:
        rows = serving.list_pools(session, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, PoolOut.model_validate)


@router.get("/{pool}", summary="Get a pool")
def get(pool: PoolPath, author: Admin, database: Database) -> PoolOut:
    with database.session() as session:
        return PoolOut.model_validate(serving.get_pool(session, pool))


@router.patch("/{pool}", summary="Change a pool's policy, region, queue or failure settings")
def update(pool: PoolPath, body: PoolPatch, author: Admin, database: Database) -> PoolOut:
    """Absent fields stay. `queue` and `failures` are replaced as a whole: fields absent in them get defaults."""
    with database.session() as session:
        changed = serving.get_pool(session, pool)
        if (body.policy, body.region) != (None, None):
            changed = serving.update_pool(session, author, pool, policy=body.policy, region=body.region)
        if "queue" in body.model_fields_set:
            queue = None if body.queue is None else body.queue.model_dump(mode="json", exclude_unset=True)
            changed = serving.set_pool_queue(session, author, pool, queue)
        if "failures" in body.model_fields_set:
            failures = None if body.failures is None else body.failures.stated()
            changed = serving.set_pool_failures(session, author, pool, failures)
        return PoolOut.model_validate(changed)


@router.delete("/{pool}", summary="Delete a pool and its targets")
def delete(pool: PoolPath, author: Admin, database: Database) -> Deleted:
    """Refused while the pool serves a model."""
    with database.session() as session:
        serving.delete_pool(session, author, pool)
    return Deleted(id=pool)


@router.post("/{pool}/targets", status_code=201, summary="Add a target to a pool")
def create_target(
    pool: PoolPath, body: TargetBody, author: Admin, database: Database, references: References
) -> TargetOut:
    _check_usable(pool, body, references)
    with database.session() as session:
        target = serving.create_target(session, author, pool, NewTarget(**body.model_dump()))
        return TargetOut.model_validate(target)


@router.get("/{pool}/targets", summary="List a pool's targets")
def list_targets(pool: PoolPath, author: Admin, database: Database) -> Page[TargetOut]:
    with database.session() as session:
        return list_of(serving.list_targets(session, pool), TargetOut.model_validate)


@router.get("/{pool}/targets/{target}", summary="Get a target")
def get_target(pool: PoolPath, target: TargetPath, author: Admin, database: Database) -> TargetOut:
    with database.session() as session:
        return TargetOut.model_validate(serving.get_target(session, pool, target))


@router.patch("/{pool}/targets/{target}", summary="Change a target")
def update_target(
    pool: PoolPath, target: TargetPath, body: TargetPatch, author: Admin, database: Database, references: References
) -> TargetOut:
    """Gateways send new requests there within a second. Requests in progress finish at the previous target.

    The result is validated like a new target, so a change of kind must include the fields of that kind.
    """
    with database.session() as session:
        stored = TargetOut.model_validate(serving.get_target(session, pool, target)).model_dump()
        try:
            wanted = TargetBody.model_validate(stored | body.model_dump(exclude_none=True))
        except ValidationError as error:
            raise describe_invalid(error.errors(include_url=False)) from error
        _check_usable(pool, wanted, references)
        changed = serving.replace_target(session, author, pool, NewTarget(**wanted.model_dump()))
        return TargetOut.model_validate(changed)


@router.delete("/{pool}/targets/{target}", summary="Remove a target from its pool")
def delete_target(pool: PoolPath, target: TargetPath, author: Admin, database: Database) -> Deleted:
    """The last target of a pool that serves a model stays."""
    with database.session() as session:
        serving.delete_target(session, author, pool, target)
    return Deleted(id=target)


def _check_usable(pool: str, body: TargetBody, references: ReferenceRules) -> None:
    """Raise InvalidRequest on a target that no gateway could use, or that refers to what it may not."""
    spec = TargetSpec(
        pool=pool,
        id=body.id,
        kind=body.kind,
        url=body.url,
        model=body.model,
        provider=body.provider,
        key_ref=body.key_ref,
        settings=body.settings,
    )
    try:
        references.check_target(body.kind, body.key_ref, body.settings)
        check_settings(spec)
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param=error.param or "settings") from error
