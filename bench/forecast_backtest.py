"""Forecasts of spending against what came: how often intervals hold it, and the error beside a seasonal naive rival's.

The days are made of ServeGen's clients: a client's recorded day gives each day's requests and lengths. ServeGen has one
day of each; that weeks have weekends, that use grows and that days differ is made here, and the rows say so.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from analytics.forecast.paths import WEEK, draw_futures
from bench.report import Report
from tollkeeper.replay.servegen import client_files, read_servegen

SERVEGEN: Final = Path(__file__).resolve().parent / "traces" / "servegen" / "deepseek-r1"
LEVELS: Final = (0.8, 0.95)
_HORIZON: Final = 14
_USD_PER_INPUT, _USD_PER_OUTPUT = 0.55e-6, 2.19e-6  # DeepSeek's list price of R1 (January 2025), per token
_WEEKEND: Final = (1.0, 1.03, 1.0, 0.98, 0.9, 0.5, 0.42)
_NOISE: Final = 0.15  # of a day, log-normal; half of it stays until the next
_MOST_REQUESTS: Final = 3_000  # of a client's day: enough for its mean cost


@dataclass(frozen=True, slots=True)
class Score:
    """One forecast of one series: how many days each level's interval held, and the absolute errors."""

    held: tuple[int, ...]
    days: int
    error: float
    naive_error: float
    total_held: tuple[bool, ...]


def forecast_rows(report: Report) -> None:
    """Forecast two weeks from several days on, for each client."""
    origins = (42, 70) if report.quick else (28, 42, 56, 70, 84, 98)
    scores = []
    for number, usd in enumerate(_daily_usd()):
        days = made_days(usd, max(origins) + _HORIZON, seed=number)
        scores += [score(days[:origin], days[origin : origin + _HORIZON]) for origin in origins]
    count = sum(one.days for one in scores)
    made = "weeks are made from ServeGen's days"
    for place, level in enumerate(LEVELS):
        share = sum(one.held[place] for one in scores) / count
        report.add(f"coverage_{round(100 * level)}", share, f"of days within, {made}", must=level - 0.1, n=count)
        months = sum(one.total_held[place] for one in scores) / len(scores)
        report.add(f"coverage_of_sums_{round(100 * level)}", months, "of two-week sums within", n=len(scores))
    error, naive = fmean(one.error for one in scores), fmean(one.naive_error for one in scores)
    report.add(
        "forecast_error",
        error / naive,
        "x the seasonal naive rival's mean absolute error",
        must=1.0,
        better="lower",
        n=len(scores),
        ratio_to={"seasonal_naive": error / naive},
    )


def score(history: Sequence[float], came: Sequence[float]) -> Score:
    """Forecast as many days as came, and compare; the rival says that each day is what it was a week before."""
    futures = draw_futures(history, len(came))
    assert futures is not None
    middle = futures.quantile(0.5)
    naive = [history[len(history) - WEEK + place % WEEK] for place in range(len(came))]
    held, totals = [], []
    for level in LEVELS:
        below, above = (1 - level) / 2, (1 + level) / 2
        low, high = futures.quantile(below), futures.quantile(above)
        held.append(sum(1 for value, one, other in zip(came, low, high, strict=True) if one <= value <= other))
        totals.append(futures.total_quantile(below) <= sum(came) <= futures.total_quantile(above))
    scale = fmean(came)
    return Score(
        tuple(held),
        len(came),
        fmean(abs(value - one) for value, one in zip(came, middle, strict=True)) / scale,
        fmean(abs(value - one) for value, one in zip(came, naive, strict=True)) / scale,
        tuple(totals),
    )


def made_days(usd: float, count: int, seed: int) -> list[float]:
    """Create days that cost so much in the mean: weekends, growth of up to 1 % a day, and days that differ."""
    source = random.Random(seed)
    growth, carried, found = source.uniform(-0.002, 0.008), 0.0, []
    for day in range(count):
        carried = 0.5 * carried + source.gauss(0, _NOISE)
        found.append(usd * _WEEKEND[day % WEEK] * (1 + growth) ** day * 2.718281828**carried)
    return found


def _daily_usd() -> list[float]:
    """Price each client's recorded day."""
    found = []
    for file in client_files(SERVEGEN):
        total = 0.0
        for number, request in enumerate(read_servegen(file)):
            if number == _MOST_REQUESTS:
                break
            total += request.input_tokens * _USD_PER_INPUT + request.output_tokens * _USD_PER_OUTPUT
        found.append(total)
    return found
