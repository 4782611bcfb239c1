"""Publishes a fitted standard cost card to the control plane, for gateways to charge by."""

from datetime import datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.gpu.standard_cost import StandardFit, usd_per_mtok
from backends.control.changes import Author
from backends.control.prices import BUILTIN_VERSIONS, NewStandardCost, create_standard_cost, end_standard_cost
from contracts.control import StandardCost
from contracts.errors import InvalidRequest

FITTED: Final = "fitted"


def publish(
    session: Session, author: Author, fit: StandardFit, valid_from: datetime, *, is_forced: bool = False
) -> StandardCost:
    """Make a fitted card valid from `valid_from` (UTC) on; the fitted or built-in card before it ends then.

    Raises Conflict if an operator's own card is valid, which a fit never ends; InvalidRequest if the fit is implausible
    and not forced. `valid_from` must not be in the past, as later requests were priced by the old card.
    """
    card = fit.card
    if fit.doubts and not is_forced:
        raise InvalidRequest(
            f"card {card.version!r} is implausible and is not published: {'; '.join(fit.doubts)}. Fit it to more hours "
            "(--hours), set a card of your own (POST /v1/standard-costs), or publish it with --force"
        )
    for row in session.scalars(select(StandardCost).where(StandardCost.model == card.model)):
        is_replaceable = row.origin == FITTED or row.version.startswith(BUILTIN_VERSIONS)
        if is_replaceable and row.valid_to is None and row.valid_from < valid_from:
            end_standard_cost(session, author, row.version, valid_from)
    return create_standard_cost(
        session,
        author,
        NewStandardCost(
            model=card.model,
            version=card.version,
            input_usd_per_mtok=usd_per_mtok(card.input_rate),
            cached_input_usd_per_mtok=usd_per_mtok(card.cached_input_rate),
            output_usd_per_mtok=usd_per_mtok(card.output_rate),
            valid_from=valid_from,
            origin=FITTED,
            evidence=fit.evidence(),
        ),
    )


def fitted_card_row(session: Session, model: str, moment: datetime) -> StandardCost | None:
    """Return a model's fitted card that is valid at a time, with its evidence; `None` if there is none."""
    rows = session.scalars(select(StandardCost).where(StandardCost.model == model, StandardCost.origin == FITTED))
    return next(
        (row for row in rows if row.valid_from <= moment and (row.valid_to is None or moment < row.valid_to)), None
    )
