"""Configuration as code over HTTP: export everything as one document, or apply a document as a whole."""

import contextlib
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from backends.control.changes import begin_change
from contracts.errors import InvalidRequest
from contracts.suggestions import did_you_mean
from gateway.control.access import Admin
from gateway.control.configuration.kind import Context
from gateway.control.configuration.plan import Step, Wanted, apply_plan, make_plan, read_document
from gateway.control.configuration.table import BY_SECTION
from gateway.control.fields import Body, Database, References
from gateway.control.sealing import Seal

router = APIRouter(prefix="/v1/configuration", tags=["configuration"])

Section = Annotated[str, Field(max_length=63)]
_MAX_OBJECTS: Final = 5_000  # in one transaction, during which nobody else can change anything


class ObjectIn(Body):
    """An object, as in the YAML file."""

    section: Section
    entry: dict[str, Any] = Field(repr=False)


class DocumentIn(Body):
    """A configuration. Absent fields get their defaults; absent objects stay, unless pruned."""

    objects: list[ObjectIn] = Field(max_length=_MAX_OBJECTS)
    prune: list[Section] = Field(
        default=[], max_length=100, description="Sections whose objects are removed if they are not in `objects`"
    )
    dry_run: bool = Field(default=False, description="Check and return the plan; change nothing")


class DifferenceOut(BaseModel):
    """A field that differs. null is its default."""

    field: str
    before: Any
    after: Any


class StepOut(BaseModel):
    """Action on an object."""

    action: Literal["create", "change", "delete"]
    section: str
    noun: str
    name: str
    object: int | None = Field(description="Its place in `objects`; null if it is removed")
    changes: list[DifferenceOut]

    @classmethod
    def of(cls, step: Step) -> "StepOut":
        """Return a step as JSON fields."""
        changes = [DifferenceOut(field=one.field, before=one.before, after=one.after) for one in step.differences]
        return cls(
            action=step.action,
            section=step.kind.section,
            noun=step.kind.noun,
            name=step.name,
            object=step.number,
            changes=changes,
        )


class IssuedKeyOut(BaseModel):
    """A key with its new secret, which is shown once."""

    tenant: str
    name: str
    id: str
    secret: str


class PlanOut(BaseModel):
    """The steps, and whether they were applied. `issued` contains the secrets of new keys."""

    applied: bool
    steps: list[StepOut]
    issued: list[IssuedKeyOut] = []


class DocumentOut(BaseModel):
    """A configuration: sections with their entries, without defaults and without secrets."""

    sections: dict[str, list[dict[str, Any]]]


class _Undone(Exception):
    """Raised to roll a transaction back."""


@router.get("", summary="Export everything as a configuration")
def export(author: Admin, database: Database, references: References, sealer: Seal, request: Request) -> DocumentOut:
    """Applying it again changes nothing. Secrets of keys and addresses of channels are left out."""
    with database.session() as session:
        context = Context(session, author, references, sealer, request.app.state.key_pepper)
        return DocumentOut(sections=read_document(context))


@router.post("", summary="Apply a configuration, or preview the changes")
def apply(
    body: DocumentIn, author: Admin, database: Database, references: References, sealer: Seal, request: Request
) -> PlanOut:
    """All steps are one transaction. A dry run applies them and rolls back.

    An error's `param` names the object, such as `objects.3.entry.policy`.
    """
    for number, name in enumerate(body.prune):
        if name not in BY_SECTION:
            raise InvalidRequest(
                f"there is no section {name!r}{did_you_mean(name, BY_SECTION)}", param=f"prune.{number}"
            )
    steps: list[Step] = []
    issued: list[dict[str, str]] = []
    with contextlib.suppress(_Undone), database.session() as session:
        # The write lock first: what the plan is made from must not change before it is carried out.
        begin_change(session, author, "configuration.apply", "", {"objects": len(body.objects)})
        context = Context(session, author, references, sealer, request.app.state.key_pepper)
        wanted = [Wanted(one.section, one.entry) for one in body.objects]
        steps = make_plan(context, wanted, frozenset(body.prune))
        apply_plan(context, steps)
        issued = context.issued
        if body.dry_run or not steps:
            raise _Undone
    shown = [StepOut.of(step) for step in steps]
    if body.dry_run:
        return PlanOut(applied=False, steps=shown)
    return PlanOut(applied=True, steps=shown, issued=[IssuedKeyOut(**one) for one in issued])
