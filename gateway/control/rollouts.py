"""Rollouts over HTTP: a candidate next to an incumbent on a route, its progress, and the results of both."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from algorithms.rollouts.rollout_tally import ArmTally, RolloutTotals, summed
from algorithms.rollouts.rollout_verdict import breaches_of
from backends.control import rollouts
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.rollout_board import is_fresh, observations_of, others_observed
from backends.control.rollout_rows import spec_of_row
from contracts.control import Rollout
from gateway.config.fields.rollout_fields import RolloutFields
from gateway.control.access import Admin
from gateway.control.fields import Body, Database, Deleted, ModelId, Page, Slug, Wanted, page_of

router = APIRouter(prefix="/v1/rollouts", tags=["rollouts"])

RolloutPath = Annotated[str, Path(max_length=63, description="The rollout's id")]
RouteQuery = Annotated[str, Query(max_length=200, description="Only those on this route")]
_Action = Callable[[Session, Author, str, str], Rollout]


class RolloutBody(Body):
    """A new rollout; its first step starts immediately."""

    id: Slug
    route: ModelId
    incumbent: ModelId
    candidate: ModelId
    rules: RolloutFields = RolloutFields()


class ReasonBody(Body):
    """Reason, for the audit log."""

    reason: str = Field(default="", max_length=500)


class RolloutOut(BaseModel):
    """A rollout and its current step."""

    id: str
    route: str
    incumbent: str
    candidate: str
    state: str = Field(description="running, paused, rolled_back, promoted or aborted")
    step: int = Field(description="From 0")
    percent: float = Field(description="Current share of the candidate")
    reason: str = Field(description="Reason of the last change")
    rules: dict[str, Any]
    stepped_at: datetime
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, row: Rollout) -> Self:
        """Convert a row."""
        return cls(
            id=row.id,
            route=row.route,
            incumbent=row.incumbent,
            candidate=row.candidate,
            state=row.state,
            step=row.step,
            percent=spec_of_row(row).percent,
            reason=row.reason,
            rules=row.rules,
            stepped_at=row.stepped_at,
            created_at=row.created_at,
            updated_at=row.updated_at,
        )


class ArmOut(BaseModel):
    """Results of one arm in the window. `null`: unknown."""

    requests: int
    errors: int
    refusals: int
    ttft_p95_ms: float | None
    inter_token_p95_ms: float | None
    duration_p95_ms: float | None
    mean_cost_usd: float | None = Field(description="Estimate for comparison; bills are exact")
    mean_output_tokens: float | None

    @classmethod
    def of(cls, tally: ArmTally) -> Self:
        """Convert a tally."""
        return cls(
            requests=tally.requests,
            errors=tally.errors,
            refusals=tally.refusals,
            ttft_p95_ms=tally.ttft_ms.quantile(),
            inter_token_p95_ms=tally.gaps_ms.quantile(),
            duration_p95_ms=tally.duration_ms.quantile(),
            mean_cost_usd=tally.cost_usd.mean,
            mean_output_tokens=tally.output_tokens.mean,
        )


class RolloutStateOut(BaseModel):
    """Current results of a rollout, summed over gateways in the guards' window."""

    rollout: RolloutOut
    gateways: int
    seen_at: datetime | None = Field(description="Time of the latest report")
    incumbent: ArmOut
    candidate: ArmOut
    step_requests: int = Field(description="Requests of the candidate since the step started")
    breaches: list[str] = Field(description="Violated guards, in words")
    shadow_day: str
    shadow_usd: float = Field(description="Cost of shadow requests on that day, including those in progress")


@router.post("", status_code=201, summary="Start a rollout")
def create(body: RolloutBody, author: Admin, database: Database) -> RolloutOut:
    with database.session() as session:
        row = rollouts.create_rollout(
            session,
            author,
            body.id,
            route=body.route,
            incumbent=body.incumbent,
            candidate=body.candidate,
            rules=body.rules.rules(),
        )
        return RolloutOut.of(row)


@router.get("", summary="List rollouts")
def list_all(wanted: Wanted, author: Admin, database: Database, route: RouteQuery = "") -> Page[RolloutOut]:
    with database.session() as session:
        rows = rollouts.list_rollouts(session, route=route, after=wanted.after, limit=wanted.limit + 1)
        return page_of(rows, wanted, RolloutOut.of)


@router.get("/{rollout}", summary="Get a rollout")
def get(rollout: RolloutPath, author: Admin, database: Database) -> RolloutOut:
    with database.session() as session:
        return RolloutOut.of(rollouts.get_rollout(session, rollout))


@router.get("/{rollout}/standing", summary="Get the current results of a rollout")
def standing(rollout: RolloutPath, author: Admin, database: Database) -> RolloutStateOut:
    with database.session() as session:
        row = rollouts.get_rollout(session, rollout)
        told, now = observations_of(session, rollout), datetime.now(UTC)
        observed = [one for one in told if one.term == row.term and is_fresh(one, now)]
        day = max((one.shadow_day for one in told), default="")
        seen: RolloutTotals = summed(others_observed(session, "", rollout, row.term, now))
        return RolloutStateOut(
            rollout=RolloutOut.of(row),
            gateways=len(observed),
            seen_at=max((one.updated_at for one in observed), default=None),
            incumbent=ArmOut.of(seen.incumbent),
            candidate=ArmOut.of(seen.candidate),
            step_requests=seen.step_requests,
            breaches=[breach.words for breach in breaches_of(seen, spec_of_row(row).rules.guards)],
            shadow_day=day,
            shadow_usd=sum(one.shadow_pico_usd for one in told if one.shadow_day == day) / 1e12,
        )


@router.post("/{rollout}/pause", summary="Keep the current share")
def pause(rollout: RolloutPath, body: ReasonBody, author: Admin, database: Database) -> RolloutOut:
    return _act(rollouts.pause_rollout, rollout, body, author, database)


@router.post("/{rollout}/resume", summary="Continue, or restart a rolled-back or aborted rollout")
def resume(rollout: RolloutPath, body: ReasonBody, author: Admin, database: Database) -> RolloutOut:
    return _act(rollouts.resume_rollout, rollout, body, author, database)


@router.post("/{rollout}/advance", summary="Start the next step now")
def advance(rollout: RolloutPath, body: ReasonBody, author: Admin, database: Database) -> RolloutOut:
    return _act(rollouts.advance_rollout, rollout, body, author, database)


@router.post("/{rollout}/promote", summary="Put the candidate in the incumbent's place on the route")
def promote(rollout: RolloutPath, body: ReasonBody, author: Admin, database: Database) -> RolloutOut:
    return _act(rollouts.promote_rollout, rollout, body, author, database)


@router.post("/{rollout}/abort", summary="Abort: send all requests to the incumbent")
def abort(rollout: RolloutPath, body: ReasonBody, author: Admin, database: Database) -> RolloutOut:
    return _act(rollouts.abort_rollout, rollout, body, author, database)


@router.delete("/{rollout}", summary="Delete a rollout that has ended")
def delete(rollout: RolloutPath, author: Admin, database: Database) -> Deleted:
    with database.session() as session:
        rollouts.delete_rollout(session, author, rollout)
    return Deleted(id=rollout)


def _act(action: _Action, rollout: str, body: ReasonBody, author: Author, database: ControlDatabase) -> RolloutOut:
    with database.session() as session:
        return RolloutOut.of(action(session, author, rollout, body.reason))
