"""Models over HTTP: the names applications ask for."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path
from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from backends.control import serving
from gateway.config.fields.cache_fields import CacheFields
from gateway.config.fields.sampling_fields import SamplingFields
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, ModelId, Page, Resource, Slug, Wanted, page_of

router = APIRouter(prefix="/v1/models", tags=["models"])

# A model's id may hold slashes ("org/name"), so it takes the rest of the path.
ModelPath = Annotated[str, Path(max_length=200, description="The model's id")]


class ModelBody(Body):
    """A new model. Its pool must exist and have a target."""

    id: ModelId
    pool: Slug
    description: str = Field(default="", max_length=500)
    context_tokens: int | None = Field(default=None, ge=1, le=100_000_000)
    defaults: SamplingFields = Field(default=SamplingFields(), description="Used if a request does not set it")
    pinned: SamplingFields = Field(
        default=SamplingFields(), description="Fixed for every request; other values are refused"
    )
    cache: CacheFields | None = Field(default=None, description="Response cache; null: off")


class ModelPatch(Body):
    """Fields to change; at least one. Defaults, pinned values and the cache are each replaced whole."""

    pool: Slug | None = Field(default=None, description="New pool")
    description: str | None = Field(default=None, max_length=500)
    context_tokens: int | None = Field(
        default=None, ge=1, le=100_000_000, description="Context length in tokens; null: the target's own"
    )
    is_active: bool | None = Field(default=None, description="false: applications cannot use the model")
    defaults: SamplingFields | None = None
    pinned: SamplingFields | None = None
    cache: CacheFields | None = Field(default=None, description="null: switch the response cache off")

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        said = (self.is_active, self.defaults, self.pinned, self.pool, self.description)
        if not any(one is not None for one in said) and self.model_fields_set.isdisjoint(("cache", "context_tokens")):
            raise ValueError(
                "nothing to change; give pool, description, context_tokens, is_active, defaults, pinned or cache"
            )
        return self


class ModelOut(Resource):
    """A model."""

    id: str
    pool_id: str
    description: str
    context_tokens: int | None
    is_active: bool
    defaults: dict[str, JsonValue] = Field(validation_alias="settings")
    pinned: dict[str, JsonValue] = Field(validation_alias="settings")
    cache: dict[str, JsonValue] = Field(validation_alias="settings")
    created_at: datetime

    @field_validator("defaults", "pinned", "cache", mode="before")
    @classmethod
    def _of_settings(cls, settings: Mapping[str, object], info: ValidationInfo) -> object:
        return settings.get(info.field_name or "", {})


@router.post("", status_code=201, summary="Create a model")
def create(body: ModelBody, author: Admin, database: Database) -> ModelOut:
    with database.session() as session:
        model = serving.create_model(
            session,
            author,
            body.id,
            body.pool,
            description=body.description,
            context_tokens=body.context_tokens,
            sampling=_sampling_of(body.defaults, body.pinned) | _cache_of(body),
        )
        return ModelOut.model_validate(model)


@router.get("", summary="List models")
def list_all(wanted: Wanted, author: Admin, database: Database) -> Page[ModelOut]:
    with database.session() as session:
        rows = serving.list_models(session, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, ModelOut.model_validate)


@router.get("/{model:path}", summary="Get a model")
def get(model: ModelPath, author: Admin, database: Database) -> ModelOut:
    with database.session() as session:
        return ModelOut.model_validate(serving.get_model(session, model))


@router.patch("/{model:path}", summary="Change a model's pool, defaults, cache or active state")
def update(model: ModelPath, body: ModelPatch, author: Admin, database: Database) -> ModelOut:
    sampling = _sampling_of(body.defaults, body.pinned) | _cache_of(body)
    with database.session() as session:
        changed = serving.get_model(session, model)
        if not body.model_fields_set.isdisjoint(("pool", "description", "context_tokens")):
            changed = serving.update_model(
                session,
                author,
                model,
                pool_id=body.pool,
                description=body.description,
                context_tokens=body.context_tokens,
                is_unbounded="context_tokens" in body.model_fields_set and body.context_tokens is None,
            )
        if body.is_active is not None:
            changed = serving.set_model_active(session, author, model, body.is_active)
        if sampling:
            changed = serving.set_model_sampling(session, author, model, sampling)
        return ModelOut.model_validate(changed)


@router.delete("/{model:path}", summary="Delete a model")
def delete(model: ModelPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        serving.delete_model(session, author, model)
    return Deleted(id=model)


def _sampling_of(defaults: SamplingFields | None, pinned: SamplingFields | None) -> dict[str, dict[str, Any]]:
    stated = zip(serving.SAMPLING_SETTINGS, (defaults, pinned), strict=True)
    return {name: fields.stated() for name, fields in stated if fields is not None}


def _cache_of(body: ModelBody | ModelPatch) -> dict[str, dict[str, Any]]:
    if "cache" not in body.model_fields_set:
        return {}
    return {serving.CACHE_SETTING: {} if body.cache is None else body.cache.stated()}
