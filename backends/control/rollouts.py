"""Rollouts in the control database: start, advance, end. A rollout that is invalid on its route is refused."""

import secrets
from collections.abc import Mapping
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.rollout_rows import spec_of_row
from backends.control.route_guard import read_serving
from backends.control.routes import get_route, set_route
from backends.control.row_names import row_name
from backends.control.sound_rows import SoundRows
from contracts.control import AuditEntry, Rollout
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.serving.configuration import ModelSpec, PoolSpec
from contracts.serving.rollout_checks import fault_of
from contracts.serving.rollouts import LIVE, RolloutSpec, RolloutState, plain_rules, rollout_rules
from contracts.serving.route_checks import Serving
from contracts.serving.routes import RouteSpec

_SALT_BYTES: Final = 16
_MAX_REASON: Final = 500


def create_rollout(
    session: Session,
    author: Author,
    rollout_id: str,
    *,
    route: str,
    incumbent: str,
    candidate: str,
    rules: Mapping[str, object],
) -> Rollout:
    """Start a rollout at its first step. Raises Conflict if the name is in use or the route has a live one,
    InvalidRequest if it is invalid.
    """
    entry = begin_change(session, author, "rollout.create", rollout_id)
    if session.get(Rollout, rollout_id) is not None:
        raise Conflict(f"rollout {rollout_id!r} exists already; choose another id", param="id")
    try:
        stated = plain_rules(rollout_rules(rules))
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param="rules") from error
    row = Rollout(
        id=rollout_id,
        route=route,
        incumbent=incumbent,
        candidate=candidate,
        rules=stated,
        salt=secrets.token_hex(_SALT_BYTES),
        state="running",
        step=0,
        term=1,
        reason="started",
        stepped_at=author.at,
        created_at=author.at,
        updated_at=author.at,
    )
    _check_stands(session, row)
    entry.detail = {"route": route, "incumbent": incumbent, "candidate": candidate, "rules": stated}
    session.add(row)
    session.flush()
    return row


def list_rollouts(session: Session, *, route: str = "", after: str = "", limit: int = 100) -> list[Rollout]:
    """Return up to `limit` rollouts whose ids sort after `after`; those of one route if it is named."""
    wanted = select(Rollout).where(Rollout.id > after).order_by(Rollout.id).limit(limit)
    return list(session.scalars(wanted.where(Rollout.route == route) if route else wanted))


def get_rollout(session: Session, rollout_id: str) -> Rollout:
    """Return a rollout. Raises NotFound."""
    row = session.get(Rollout, rollout_id)
    if row is None:
        raise NotFound(
            f"rollout {rollout_id!r} does not exist; `tollkeeper rollouts list` shows those that do",
            rows=[row_name(Rollout, rollout_id)],
        )
    return row


def delete_rollout(session: Session, author: Author, rollout_id: str) -> None:
    """Remove a rollout that has ended. Raises NotFound, and Conflict while it is live."""
    begin_change(session, author, "rollout.delete", rollout_id)
    row = get_rollout(session, rollout_id)
    if row.state in LIVE:
        raise Conflict(f"rollout {rollout_id!r} is {row.state}; abort or promote it first")
    session.delete(row)
    session.flush()


def pause_rollout(session: Session, author: Author, rollout_id: str, reason: str = "") -> Rollout:
    """Pause a rollout at its current share: no step follows automatically. Guards stay active."""
    return _move(session, author, rollout_id, "pause", ("running",), "paused", reason)


def resume_rollout(session: Session, author: Author, rollout_id: str, reason: str = "") -> Rollout:
    """Continue a paused rollout, or restart one that ended without a promotion at the first step."""
    row = _move(
        session, author, rollout_id, "resume", ("paused", "aborted", "rolled_back"), "running", reason or "resumed"
    )
    _check_stands(session, row)
    return row


def abort_rollout(session: Session, author: Author, rollout_id: str, reason: str = "") -> Rollout:
    """Abort a rollout: the incumbent answers everything again."""
    return _move(session, author, rollout_id, "abort", LIVE, "aborted", reason or "aborted")


def roll_back(session: Session, author: Author, rollout_id: str, term: int, reason: str) -> Rollout:
    """Roll back to the incumbent because of a gateway's measurements in a term.

    Raises NotFound, and Conflict if that term has passed.
    """
    return _move(session, author, rollout_id, "roll_back", LIVE, "rolled_back", reason, seen_term=term)


def advance_rollout(
    session: Session, author: Author, rollout_id: str, reason: str = "", *, seen_term: int | None = None
) -> Rollout:
    """Start the next step; with `seen_term`, only if that is still the current term.

    Raises NotFound, Conflict if it is not live or the term has passed, InvalidRequest if it is at its last step.
    """
    entry, row = _opened(session, author, rollout_id, "advance", LIVE, seen_term)
    spec = spec_of_row(row)
    if row.step + 1 >= len(spec.rules.steps):
        raise InvalidRequest(f"rollout {rollout_id!r} stands at its last step; promote or abort it")
    row.step += 1
    percent = spec.rules.steps[row.step].percent
    row.reason, row.stepped_at = (reason or f"went on to {percent:g} percent")[:_MAX_REASON], author.at
    entry.detail = {"step": row.step, "percent": percent, "reason": row.reason}
    _touch(session, row, author)
    return row


def promote_rollout(
    session: Session, author: Author, rollout_id: str, reason: str = "", *, seen_term: int | None = None
) -> Rollout:
    """Replace the incumbent by the candidate on the route. `seen_term` as for `advance_rollout`.

    The route's entries keep their weights, conditions and regions, but not the incumbent's provider. Raises also as
    `set_route` does.
    """
    entry, row = _opened(session, author, rollout_id, "promote", LIVE, seen_term)
    before = get_route(session, row.route).rules
    row.state, row.reason = "promoted", (reason or "promoted")[:_MAX_REASON]  # first: it blocks changes of its route
    set_route(session, author, row.route, rules=_promoted(before, row))
    entry.detail = {"route": row.route, "before": before, "reason": row.reason}
    _touch(session, row, author)
    return row


def load_rollouts(
    rows: SoundRows,
    routes: Mapping[str, RouteSpec],
    models: Mapping[str, ModelSpec],
    pools: Mapping[str, PoolSpec],
) -> dict[str, RolloutSpec]:
    """Return the live rollouts by route. An invalid one is left out and listed in the faults."""
    wanted = select(Rollout).where(Rollout.state.in_(LIVE))
    built = rows.build("rollout", wanted, (Rollout.id,), lambda row: spec_of_row(row[0]))
    kept: dict[str, RolloutSpec] = {}
    for spec in sorted(built, key=lambda spec: spec.id):
        fault = fault_of(spec, Serving(routes, models, pools))
        if fault is None and spec.route in kept:
            fault = ConfigurationError(f"route {spec.route!r} has rollout {kept[spec.route].id!r} as well")
        if fault is not None:
            rows.faults.append(f"rollout {spec.id!r} is left out: {fault.message}")
        else:
            kept[spec.route] = spec
    return kept


def _move(
    session: Session,
    author: Author,
    rollout_id: str,
    action: str,
    from_states: tuple[RolloutState, ...],
    to: RolloutState,
    reason: str,
    *,
    seen_term: int | None = None,
) -> Rollout:
    entry, row = _opened(session, author, rollout_id, action, from_states, seen_term)
    was = row.state
    if to == "running" and was != "paused":
        row.step = 0
    row.state, row.reason = to, (reason or to)[:_MAX_REASON]
    if to == "running":
        row.stepped_at = author.at
    entry.detail = {"before": was, "after": to, "reason": row.reason}
    _touch(session, row, author)
    return row


def _opened(
    session: Session,
    author: Author,
    rollout_id: str,
    action: str,
    from_states: tuple[RolloutState, ...],
    seen_term: int | None,
) -> tuple[AuditEntry, Rollout]:
    """Start a change of a rollout. If several gateways act on the same term, one succeeds.

    Raises NotFound, and Conflict if the term has passed, or the state does not allow the change.
    """
    entry = begin_change(session, author, f"rollout.{action}", rollout_id)
    row = session.get(Rollout, rollout_id, populate_existing=True)
    if row is None:
        raise NotFound(
            f"rollout {rollout_id!r} does not exist; `tollkeeper rollouts list` shows those that do",
            rows=[row_name(Rollout, rollout_id)],
        )
    if seen_term is not None and row.term != seen_term:
        raise Conflict(f"rollout {rollout_id!r} is at term {row.term}, and no longer at {seen_term}")
    if row.state not in from_states:
        raise Conflict(
            f"rollout {rollout_id!r} is {row.state}; only one that is {' or '.join(from_states)} can {_VERBS[action]}"
        )
    return entry, row


_VERBS: Final = {
    "pause": "be paused",
    "resume": "be resumed",
    "abort": "be aborted",
    "roll_back": "be rolled back",
    "advance": "go on",
    "promote": "be promoted",
}


def _touch(session: Session, row: Rollout, author: Author) -> None:
    row.term += 1
    row.updated_at = author.at
    session.flush()


def _check_stands(session: Session, row: Rollout) -> None:
    live = select(Rollout.id).where(Rollout.route == row.route, Rollout.state.in_(LIVE), Rollout.id != row.id)
    with session.no_autoflush:
        other = session.scalars(live.limit(1)).first()
    if other is not None:
        raise Conflict(f"route {row.route!r} has rollout {other!r}, which is live; end it first", param="route")
    try:
        fault = fault_of(spec_of_row(row), read_serving(session))
    except ConfigurationError as error:
        fault = error
    if fault is not None:
        raise InvalidRequest(fault.message, param=fault.param) from fault


def _promoted(rules: Mapping[str, object], row: Rollout) -> dict[str, object]:
    entries = rules.get("choose")
    changed = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("model") == row.incumbent:
            entry = {name: value for name, value in entry.items() if name != "provider"} | {"model": row.candidate}
        changed.append(entry)
    return {**rules, "choose": changed}
