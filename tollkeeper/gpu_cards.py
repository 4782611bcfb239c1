"""`tollkeeper gpu fit`, `variance` and `compare`: standard cost, actual cost, and a provider's price of tokens."""

import os
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from analytics.gpu.cost import BUSY_LINES, GpuCost, device_models, gpu_cost
from analytics.gpu.ledger import gpu_ledger
from analytics.gpu.publishing import fitted_card_row, publish
from analytics.gpu.standard_cost import ModelHour, card_version, fit_standard_cost, model_hours, usd_per_mtok
from analytics.gpu.unit_cost import host_or_buy
from analytics.gpu.variance import Standard, cost_variance, variance_as_json
from analytics.prices.catalogue import catalogue_cards
from analytics.scope import Period
from backends.control.changes import Author
from backends.control.prices import card_of_standard_cost
from backends.control.rates import load_rates
from contracts.errors import NotFound
from contracts.pricing.prices import PriceBook
from tollkeeper.open_installation import OpenInstallation, open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import in_words, one_line_errors, print_json

OwnModel = Annotated[str, typer.Argument(metavar="MODEL", help="Model on this installation's engine hosts.")]
Hours = Annotated[int, typer.Option("--hours", min=2, max=71, help="Look-back window in whole hours.")]


def fit_command(
    model: OwnModel,
    last: Hours = 24,
    publishes: Annotated[
        bool,
        typer.Option("--publish", help="Publish it: requests are priced by it from now on."),
    ] = False,
    forces: Annotated[bool, typer.Option("--force", help="Publish it even if its rates are implausible.")] = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Fit a standard cost card to the GPUs' cost: USD per uncached input, cached input and output token."""
    now = datetime.now(UTC)
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        period = _whole_hours(now, last)
        hours, cost = _measured(opened, period, model)
        busy, other = _busy_and_other(cost, model)
        fit = fit_standard_cost(model, card_version(model, period.end), hours, period, busy, other)
        if publishes:
            with opened.database.session() as session:
                publish(session, Author("tollkeeper gpu fit", now), fit, now, is_forced=forces)
    card = fit.card
    shown = {
        "version": card.version,
        "input_usd_per_mtok": format(usd_per_mtok(card.input_rate), "f"),
        "cached_input_usd_per_mtok": format(usd_per_mtok(card.cached_input_rate), "f"),
        "output_usd_per_mtok": format(usd_per_mtok(card.output_rate), "f"),
        "is_published": publishes,
        "is_plausible": not fit.doubts,
        "doubts": list(fit.doubts),
        "evidence": fit.evidence(),
    }
    if not as_json:
        shown.pop("doubts")
    _show(shown, as_json)
    for doubt in fit.doubts:
        typer.echo(f"implausible: {doubt}", err=True)


def variance_command(
    model: OwnModel,
    last: Hours = 24,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Explain why the GPUs' cost differs from the price cards' charges.

    Causes: requests that share a GPU, idle time, volume, cache.
    """
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        period = _whole_hours(datetime.now(UTC), last)
        with opened.database.session() as session:
            row = fitted_card_row(session, model, period.end)
            if row is None:
                raise NotFound(f"model {model!r} has no fitted standard cost card; tollkeeper gpu fit makes one")
            standard = Standard.from_evidence(card_of_standard_cost(row), row.evidence)
        hours, cost = _measured(opened, period, model)
        busy, other = _busy_and_other(cost, model)
        variance = cost_variance(hours, standard, busy, other, period.end - period.start)
    _show(variance_as_json(variance), as_json)


def compare_command(
    model: OwnModel,
    provider: Annotated[str, typer.Option(help="Provider to compare with, such as openai.")],
    as_model: Annotated[str, typer.Option("--as", help="The provider's model to compare with.")],
    last: Hours = 24,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Compare your cost per million tokens with a provider's price for the same mix of tokens."""
    now = datetime.now(UTC)
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        period = _whole_hours(now, last)
        card = PriceBook(catalogue_cards(provider, as_model)).card_for(as_model, "", now)
        if card is None:
            raise NotFound(f"the price list has no price for {as_model!r} of {provider} now")
        hours, cost = _measured(opened, period, model)
        busy, other = _busy_and_other(cost, model)
        lines = cost.models_pico_usd.get(model, {})
        used = lines.get("attributed_ns", 0) / (busy + other) if busy + other else 0.0
        answer = host_or_buy(hours, busy + other, used, card)
    shown = {
        "model": model,
        "usd_per_mtok": format(answer.ours.usd_per_mtok, "f"),
        "confidence_95": [format(answer.ours.low, "f"), format(answer.ours.high, "f")],
        "hours": answer.ours.hours,
        "provider_card": answer.provider_version,
        "provider_usd_per_mtok": format(answer.provider_usd_per_mtok, "f"),
        "utilisation": answer.utilisation,
        "break_even_utilisation": answer.break_even_utilisation,
        "cheaper": "host" if answer.is_hosting_cheaper else "buy",
        "is_certain": answer.is_certain,
    }
    _show(shown, as_json)


def _measured(opened: OpenInstallation, period: Period, model: str) -> tuple[list[ModelHour], GpuCost]:
    with opened.database.session() as session:
        rates = load_rates(session)
    ledger, models = gpu_ledger(opened.store, period), device_models(opened.store, period)
    return model_hours(opened.store, period, model), gpu_cost(ledger, {}, rates, models, "platform")


def _busy_and_other(cost: GpuCost, model: str) -> tuple[int, int]:
    lines = cost.models_pico_usd.get(model, {})
    busy = sum(lines.get(line, 0) for line in BUSY_LINES if line != "recompute_ns")
    # Before an engine's first record and after its last, a GPU serves no model, so no model is charged for that time.
    return busy, sum(amount for line, amount in lines.items() if line != "no_engine_ns") - busy


def _whole_hours(now: datetime, last: int) -> Period:
    end = now.replace(minute=0, second=0, microsecond=0)
    return Period(end - timedelta(hours=last), end)


def _show(shown: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    for name, value in shown.items():
        typer.echo(f"{name.removeprefix('is_').replace('_', ' '):26} {in_words(value)}")
