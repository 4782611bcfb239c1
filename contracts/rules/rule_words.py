"""The words for limits and budgets, over HTTP and in the YAML file, and their base units.

`gpu_ms` is counted in nanoseconds and `usd` in pico-USD; every other metric is counted as it is written.
"""

from collections.abc import Iterable
from decimal import Decimal
from itertools import pairwise
from typing import Final

from contracts.errors import ConfigurationError
from contracts.pricing.money import pico_usd, usd
from contracts.rules.limits import MAX_AMOUNT, LimitSpec, Scope, Window
from contracts.rules.metrics import KIND_OF_METRIC, KIND_OF_WORD, Metric, MetricWord

MAX_GPU_MILLISECONDS: Final = MAX_AMOUNT // KIND_OF_METRIC["gpu_ns"].base_units
MAX_USD: Final = usd(MAX_AMOUNT)
WINDOW_SECONDS: Final[dict[Window, int]] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def base_amount(word: MetricWord, amount: int | None, amount_usd: Decimal | None) -> int:
    """Convert a written amount to the metric's base unit, exactly.

    Raises ConfigurationError if the amount is in the wrong field, is finer than a pico-USD, or exceeds `MAX_AMOUNT`.
    """
    if word == "usd":
        if amount_usd is None or amount is not None:
            raise ConfigurationError(
                "metric usd takes its amount in amount_usd, as decimal text, and no amount", param="amount_usd"
            )
        return pico_usd_of(amount_usd)
    if amount is None or amount_usd is not None:
        raise ConfigurationError(
            f"metric {word} takes its amount as a whole number in amount, and no amount_usd", param="amount"
        )
    kind = KIND_OF_WORD[word]
    most = MAX_AMOUNT // kind.base_units
    if kind.decimals and amount > most:
        raise ConfigurationError(f"amount is {amount} {kind.unit}; at most {most}", param="amount")
    return amount * kind.base_units


def pico_usd_of(amount_usd: Decimal) -> int:
    """Convert USD to pico-USD. Raises ConfigurationError naming `amount_usd` if the amount is invalid."""
    try:
        return pico_usd(amount_usd)
    except ValueError as error:
        raise ConfigurationError(f"amount_usd: {error}", param="amount_usd") from error


def exact_text(metric: Metric, amount: int) -> str:
    """Format an amount in base units as exact decimal text in the unit for people: USD, GPU milliseconds, tokens."""
    places = KIND_OF_METRIC[metric].decimals
    if not places:
        return str(amount)
    text = f"{abs(amount):0{places + 1}d}"
    decimals = text[-places:].rstrip("0")
    return ("-" if amount < 0 else "") + text[:-places] + (f".{decimals}" if decimals else "")


def amount_text(metric: Metric, amount: int) -> str:
    """Format an amount with its unit, for a message: "12.5 USD", "100 tokens"."""
    return f"{exact_text(metric, amount)} {KIND_OF_METRIC[metric].unit}"


def limit_text(limit: LimitSpec) -> str:
    """Format what a limit allows, for a message: "100 tokens per minute"."""
    return amount_text(limit.metric, limit.amount) + (f" per {limit.window}" if limit.window else "")


def find_contradiction(limits: Iterable[LimitSpec]) -> tuple[LimitSpec, LimitSpec] | None:
    """Find two limits of one scope and metric of which the wider window allows less than the narrower one.

    Return (narrower, wider): the narrower amount could never be used. `None` if there is no such pair.
    """
    rivals: dict[tuple[Scope, Metric], list[tuple[int, LimitSpec]]] = {}
    for limit in limits:
        if limit.window is not None:
            rivals.setdefault((limit.scope, limit.metric), []).append((WINDOW_SECONDS[limit.window], limit))
    for of_scope in rivals.values():
        for (_, narrower), (_, wider) in pairwise(sorted(of_scope, key=lambda pair: pair[0])):
            if wider.amount < narrower.amount:
                return narrower, wider
    return None


def contradiction_text(narrower: LimitSpec, wider: LimitSpec) -> str:
    """Return why two limits contradict each other, and what to do."""
    return (
        f"limit {wider.id!r} allows {limit_text(wider)}, less than the {limit_text(narrower)} of limit "
        f"{narrower.id!r} for the same scope; raise the wider window's amount or lower the narrower one's"
    )
