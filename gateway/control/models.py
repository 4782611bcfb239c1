"""Models over HTTP: the names applications ask for."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from backends.control import serving
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


class ModelPatch(Body):
    """What to change."""

    is_active: bool = Field(description="false withdraws the model from applications")


class ModelOut(Resource):
    """A model."""

    id: str
    pool_id: str
    description: str
    context_tokens: int | None
    is_active: bool
    created_at: datetime


@router.post("", status_code=201, summary="Create a model")
def create(body: ModelBody, author: Admin, database: Database) -> ModelOut:
    with database.session() as session:
        model = serving.create_model(
            session, author, body.id, body.pool, description=body.description, context_tokens=body.context_tokens
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


@router.patch("/{model:path}", summary="Offer or withdraw a model")
def update(model: ModelPath, body: ModelPatch, author: Admin, database: Database) -> ModelOut:
    with database.session() as session:
        return ModelOut.model_validate(serving.set_model_active(session, author, model, body.is_active))


@router.delete("/{model:path}", summary="Delete a model")
def delete(model: ModelPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        serving.delete_model(session, author, model)
    return Deleted(id=model)
