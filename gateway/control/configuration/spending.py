"""Prices, standard costs, rates, limits and budgets as configuration."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import select

from backends.control import budgets as stored_budgets
from backends.control import limits as stored_limits
from backends.control import prices as stored_prices
from backends.control.budgets import BudgetChange, NewBudget
from backends.control.limits import LimitChange, NewLimit
from contracts.control import Budget, CostRate, Limit, Price, StandardCost
from contracts.errors import InvalidRequest
from contracts.rules.limits import EACH
from gateway.config.entries import ConfiguredBudget, ConfiguredLimit, ConfiguredPrice
from gateway.control import prices, rates
from gateway.control.configuration.kind import Change, Context, EntryT, ExistingObject, Kind
from gateway.control.prices import PriceBody, StandardCostBody
from gateway.control.rates import RateBody, RateEndBody

CardT = TypeVar("CardT", bound=BaseModel)
_SUBJECTLESS = ("tenant", "conversation")


class _Dated(Kind[EntryT]):
    """Dated objects that are never edited: one ends, and another starts. Only `valid_to` may differ."""

    not_exported = ("replaces",)

    def identity(self, entry: EntryT) -> str:
        return str(getattr(entry, "version"))  # noqa: B009 - the type parameter has no fields

    def refuse_fixed(self, changed: Iterable[str]) -> None:
        """Raise InvalidRequest if anything but the end differs."""
        for name in sorted(set(changed) - {"valid_to"}):
            raise InvalidRequest(
                f"{name} differs, and a {self.noun} is never edited: requests have been priced by it. Give the new "
                f"values a version of their own, and end this {self.noun} with valid_to"
                + (" (or name it in the new one's `replaces`)" if self.section == "prices" else ""),
                param=name,
            )

    def completed(self, context: Context, entry: EntryT, before: EntryT) -> EntryT:
        # An end that the file does not speak of was set by hand, or by the card that replaces this one.
        kept: dict[str, Any] = {} if "valid_to" in entry.model_fields_set else {"valid_to": getattr(before, "valid_to")}  # noqa: B009
        if "replaces" in type(entry).model_fields:
            kept["replaces"] = ""
            if entry.replaces and "valid_from" not in entry.model_fields_set:  # type: ignore[attr-defined]
                kept["valid_from"] = before.valid_from  # type: ignore[attr-defined]
        return entry.model_copy(update=kept)


def _found(entry: EntryT, valid_to: datetime | None) -> ExistingObject[EntryT]:
    return ExistingObject(entry, is_prunable=valid_to is None or valid_to > datetime.now(UTC))


def _end(entry: BaseModel) -> datetime:
    end: datetime | None = getattr(entry, "valid_to")  # noqa: B009
    if end is None:
        raise InvalidRequest("an end cannot be removed; create a new version", param="valid_to")
    return end


class Prices(_Dated[ConfiguredPrice]):
    """Price cards."""

    section, noun, entry = "prices", "price card", ConfiguredPrice

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredPrice]]:
        for row in context.session.scalars(select(Price).order_by(Price.model, Price.valid_from, Price.version)):
            names = ("version", "model", "provider", "region", "valid_from", "valid_to")
            own = {name: getattr(row, name) for name in names}
            entry = ConfiguredPrice.model_validate({**row.card, **own, "tenant": row.tenant_id})
            yield _found(entry, row.valid_to)

    def create(self, context: Context, entry: ConfiguredPrice) -> None:
        stated = entry.model_dump(exclude_unset=True)
        for name in ("tenant", "replaces"):
            stated[name] = stated.get(name) or None
        # That a card begins in the past is written in the file on purpose.
        body = PriceBody.model_validate({**stated, "effect": "confirmed"})
        prices.create_price(body, context.author, context.database)

    def change(self, context: Context, change: Change[ConfiguredPrice]) -> None:
        version, end = change.after.version, _end(change.after)
        stored_prices.end_price(context.session, context.author, version, end, is_confirmed=True)

    def delete(self, context: Context, entry: ConfiguredPrice) -> None:
        stored_prices.end_price(context.session, context.author, entry.version, context.author.at)


class StandardCosts(_Dated[StandardCostBody]):
    """Standard cost cards of models of our own."""

    section, noun, entry = "standard_costs", "standard cost card", StandardCostBody

    def current(self, context: Context) -> Iterable[ExistingObject[StandardCostBody]]:
        for row in context.session.scalars(select(StandardCost).order_by(StandardCost.version)):
            entry = StandardCostBody.model_validate(
                {name: getattr(row, name) for name in StandardCostBody.model_fields}
            )
            yield _found(entry, row.valid_to)

    def create(self, context: Context, entry: StandardCostBody) -> None:
        prices.create_standard_cost(entry, context.author, context.database)

    def change(self, context: Context, change: Change[StandardCostBody]) -> None:
        version, end = change.after.version, _end(change.after)
        stored_prices.end_standard_cost(context.session, context.author, version, end, is_confirmed=True)

    def delete(self, context: Context, entry: StandardCostBody) -> None:
        stored_prices.end_standard_cost(context.session, context.author, entry.version, context.author.at)


class Rates(_Dated[RateBody]):
    """The price of a GPU hour, an exchange rate, or a tenant's invoice terms."""

    section, noun, entry = "rates", "rate", RateBody

    def current(self, context: Context) -> Iterable[ExistingObject[RateBody]]:
        for row in context.session.scalars(select(CostRate).order_by(CostRate.version)):
            stated = {name: getattr(row, name) for name in RateBody.model_fields}
            yield _found(RateBody.model_validate(stated), row.valid_to)

    def create(self, context: Context, entry: RateBody) -> None:
        rates.create_rate(entry, context.author, context.database)

    def change(self, context: Context, change: Change[RateBody]) -> None:
        rates.end_rate(change.after.version, RateEndBody(valid_to=_end(change.after)), context.author, context.database)

    def delete(self, context: Context, entry: RateBody) -> None:
        body = RateEndBody(valid_to=context.author.at)
        rates.end_rate(entry.version, body, context.author, context.database)


class Limits(Kind[ConfiguredLimit]):
    """Rate and concurrency limits, by id, or by what they count."""

    section, noun, entry = "limits", "limit", ConfiguredLimit
    fixed = ("id", "tenant", "level", "subject", "model", "metric", "window")
    not_exported = ("id",)

    def identity(self, entry: ConfiguredLimit) -> str:
        parts = (entry.tenant, entry.level, _subject(entry), entry.model, entry.metric, entry.window or "")
        return ":".join(part for part in parts if part)

    def names(self, entry: ConfiguredLimit) -> tuple[str, ...]:
        return ((f"id:{entry.id}",) if entry.id else ()) + (self.identity(entry),)

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredLimit]]:
        order = (Limit.tenant_id, Limit.level, Limit.subject, Limit.model, Limit.metric, Limit.window, Limit.id)
        for row in context.session.scalars(select(Limit).order_by(*order)):
            same = ("id", "level", "subject", "model", "metric", "amount", "amount_usd", "when_away", "when_unpriced")
            stated = {name: getattr(row, name) for name in same}
            # `model_construct` would do, but a row that breaks the file's rules is better found here.
            yield ExistingObject(
                ConfiguredLimit.model_validate({**stated, "tenant": row.tenant_id, "window": row.window or None})
            )

    def completed(self, context: Context, entry: ConfiguredLimit, before: ConfiguredLimit) -> ConfiguredLimit:
        return entry.model_copy(update={"id": entry.id or before.id, "subject": _subject(entry)})

    def create(self, context: Context, entry: ConfiguredLimit) -> None:
        stated = entry.model_dump(exclude={"currency", "tenant", "subject", "id"})
        own: dict[str, Any] = {"tenant_id": entry.tenant, "subject": _subject(entry), "id": _checked_id(entry.id)}
        stored_limits.create_limit(context.session, context.author, NewLimit(**own, **stated))

    def change(self, context: Context, change: Change[ConfiguredLimit]) -> None:
        wanted = {name: getattr(change.after, name) for name in change.fields}
        made = LimitChange(**wanted)
        stored_limits.update_limit(context.session, context.author, change.after.tenant, str(change.before.id), made)

    def delete(self, context: Context, entry: ConfiguredLimit) -> None:
        stored_limits.delete_limit(context.session, context.author, entry.tenant, str(entry.id))


class Budgets(Kind[ConfiguredBudget]):
    """Budgets of money and GPU time, by id, or by what they count. A change keeps the amount spent so far."""

    section, noun, entry = "budgets", "budget", ConfiguredBudget
    fixed = ("id", "tenant", "level", "subject", "model", "period", "starts_at")
    not_exported = ("id",)

    def identity(self, entry: ConfiguredBudget) -> str:
        unit = "gpu_ms" if entry.amount_usd is None else "usd"
        parts = (entry.tenant, entry.level, _subject(entry), entry.model, unit, entry.period)
        return ":".join(part for part in parts if part)

    def names(self, entry: ConfiguredBudget) -> tuple[str, ...]:
        return ((f"id:{entry.id}",) if entry.id else ()) + (self.identity(entry),)

    def current(self, context: Context) -> Iterable[ExistingObject[ConfiguredBudget]]:
        order = (Budget.tenant_id, Budget.level, Budget.subject, Budget.model, Budget.period, Budget.id)
        rows = list(context.session.scalars(select(Budget).order_by(*order)))
        same = tuple(name for name in ConfiguredBudget.model_fields if name not in ("tenant", "currency"))
        for row in rows:
            stated = {name: getattr(row, name) for name in same}
            stated["webhook_url"] = context.sealer.open_address(row.webhook_url)
            entry = ConfiguredBudget.model_validate({**stated, "tenant": row.tenant_id})
            is_over = row.ends_at is not None and row.ends_at <= context.author.at
            yield ExistingObject(entry, is_exported=not is_over)

    def completed(self, context: Context, entry: ConfiguredBudget, before: ConfiguredBudget) -> ConfiguredBudget:
        return entry.model_copy(update={"id": entry.id or before.id, "subject": _subject(entry)})

    def create(self, context: Context, entry: ConfiguredBudget) -> None:
        stated = entry.model_dump(exclude={"currency", "tenant", "subject", "id"})
        stated["webhook_url"] = context.sealer.seal_address(entry.webhook_url)
        own: dict[str, Any] = {"tenant_id": entry.tenant, "subject": _subject(entry), "id": _checked_id(entry.id)}
        stored_budgets.create_budget(context.session, context.author, NewBudget(**own, **stated))

    def change(self, context: Context, change: Change[ConfiguredBudget]) -> None:
        wanted = {name: getattr(change.after, name) for name in change.fields}
        if "webhook_url" in wanted:
            wanted["webhook_url"] = context.sealer.seal_address(change.after.webhook_url)
        made = BudgetChange(**wanted, is_endless="ends_at" in wanted and wanted["ends_at"] is None)
        stored_budgets.update_budget(context.session, context.author, change.after.tenant, str(change.before.id), made)

    def delete(self, context: Context, entry: ConfiguredBudget) -> None:
        stored_budgets.delete_budget(context.session, context.author, entry.tenant, str(entry.id))


def _subject(entry: ConfiguredLimit | ConfiguredBudget) -> str:
    return "" if entry.level in _SUBJECTLESS and entry.subject == EACH else entry.subject


def _checked_id(given: str | None) -> str:
    if given is not None and len(given) > 63:
        raise InvalidRequest(f"id is {len(given)} characters; at most 63 are allowed", param="id")
    return given or ""
