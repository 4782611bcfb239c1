"""The state of a budget in its current period: spent, reserved, forecast."""

from datetime import datetime
from typing import Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from backends.control.budgets import Spent, spent_of
from backends.control.rule_scope import is_each
from contracts.control import BudgetEvent
from contracts.recording.moments import utc_moment
from contracts.rules.limits import BudgetSpec
from contracts.rules.metrics import Metric
from contracts.rules.periods import budget_outlook, budget_period
from contracts.rules.rule_words import exact_text

_MOST_SUBJECTS = 100

Unit = Literal["usd", "gpu_milliseconds"]


class SubjectStateOut(BaseModel):
    """State of one subject. Amounts are exact decimal text in the budget's unit."""

    subject: str = Field(description="Empty for the tenant as a whole")
    spent: str = Field(description="Cost of requests, including overdraft")
    overdraft: str = Field(
        description="Part of the spending that exceeded the budget: a target generated more than allowed"
    )
    reserved: str = Field(description="Reserved by requests in progress, in addition to what is spent")
    remaining: str = Field(description="Neither spent nor reserved; at least 0")
    percent: str = Field(description="Percentage of the amount that is spent, cut to two decimals")
    projected: str | None = Field(
        description="Forecast for the end of the period at the current rate; null: no end, or too early"
    )
    exhausted_at: datetime | None = Field(
        description="Time at which the budget is used up at the current rate; null: not in this period"
    )
    reported_at: datetime | None = Field(description="Time of the last report; null: no gateway has reported")
    from_ledger: str | None = Field(
        description="Part of the spending added from the ledger: usage from before its creation, and corrections; "
        "null: not determined yet"
    )
    counted_since: datetime | None = Field(
        description="The budget was created within the period and counts since then; null: the whole period counts"
    )


class BudgetStateOut(BaseModel):
    """State of a budget in the current period."""

    unit: Unit
    amount: str
    time_zone: str
    period_start: datetime = Field(description="In the tenant's time zone")
    period_end: datetime | None = Field(description="Exclusive; null: it has no end")
    subjects: list[SubjectStateOut] = Field(
        description="One entry; with subject '*' one per subject, highest spending first, at most 100"
    )
    has_more: bool = False


class BudgetEventOut(BaseModel):
    """A passed threshold. Amounts are exact decimal text in `unit`."""

    id: str
    subject: str
    threshold_percent: int
    unit: Unit
    amount: str
    spent: str
    period_start: datetime
    at: datetime
    delivered_at: datetime | None
    attempts: int
    last_error: str

    @classmethod
    def of(cls, event: BudgetEvent, metric: Metric) -> Self:
        """Convert a row."""
        return cls(
            id=event.id,
            subject=event.subject,
            threshold_percent=event.threshold_percent,
            unit=unit_of(metric),
            amount=exact_text(metric, int(event.amount)),
            spent=exact_text(metric, int(event.spent)),
            period_start=event.period_start,
            at=event.at,
            delivered_at=event.delivered_at,
            attempts=event.attempts,
            last_error=event.last_error,
        )


def unit_of(metric: Metric) -> Unit:
    """Return the unit of a budget's amounts."""
    return "usd" if metric == "pico_usd" else "gpu_milliseconds"


def state_of(session: Session, budget: BudgetSpec, counts_since_ns: int, now_ns: int) -> BudgetStateOut | None:
    """Return a budget's state; `None` before it starts and after it has ended.

    The spending rate is measured since `counts_since_ns`, if that is later than the period's start and the ledger has
    not added the earlier usage. There is no rate before a tenth of the period has been measured.
    """
    bounds = budget_period(budget, now_ns)
    if bounds is None:
        return None
    start_ns, end_ns = bounds
    spent = spent_of(session, budget.id, start_ns)
    if not is_each(budget.scope):
        spent = {budget.scope.subject: spent.get(budget.scope.subject, Spent())}
    ordered = sorted(spent.items(), key=lambda pair: (-pair[1].total, pair[0]))
    zone = ZoneInfo(budget.time_zone)
    return BudgetStateOut(
        unit=unit_of(budget.metric),
        amount=exact_text(budget.metric, budget.amount),
        time_zone=budget.time_zone,
        period_start=utc_moment(start_ns).astimezone(zone),
        period_end=None if end_ns is None else utc_moment(end_ns).astimezone(zone),
        subjects=[
            _subject_standing(budget, subject, each, (start_ns, counts_since_ns, now_ns, end_ns))
            for subject, each in ordered[:_MOST_SUBJECTS]
        ],
        has_more=len(ordered) > _MOST_SUBJECTS,
    )


def _subject_standing(
    budget: BudgetSpec, subject: str, spent: Spent, times: tuple[int, int, int, int | None]
) -> SubjectStateOut:
    metric, amount = budget.metric, budget.amount
    start_ns, made_ns, now_ns, end_ns = times
    since_ns = start_ns if spent.recounted is not None else made_ns
    outlook = budget_outlook(amount, spent.total, start_ns, since_ns, now_ns, end_ns)
    hundredths = spent.total * 10_000 // amount
    return SubjectStateOut(
        subject=subject,
        spent=exact_text(metric, spent.total),
        overdraft=exact_text(metric, spent.overdraft),
        reserved=exact_text(metric, spent.reserved),
        remaining=exact_text(metric, max(amount - spent.total - spent.reserved, 0)),
        percent=f"{hundredths // 100}.{hundredths % 100:02d}",
        projected=None if outlook.projected is None else exact_text(metric, outlook.projected),
        exhausted_at=None if outlook.exhausted_at_ns is None else _moment(outlook.exhausted_at_ns),
        reported_at=spent.since,
        from_ledger=None if spent.recounted is None else exact_text(metric, spent.recounted),
        counted_since=_moment(max(start_ns, made_ns)) if spent.recounted is None and made_ns > start_ns else None,
    )


def _moment(nanoseconds: int) -> datetime | None:
    try:
        return utc_moment(nanoseconds)
    except OverflowError:  # at this pace it lasts beyond the year 9999
        return None
