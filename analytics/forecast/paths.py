"""Possible futures of a series of days: exponential smoothing with a weekly season, by statsmodels.

The model is ETS(A,Ad,A) of Hyndman and others (2008) on a logarithm, so that a season and an error are shares of the
level; futures are drawn from it. What the fit cannot know of itself widens them: its parameters were chosen to suit
the past, so errors are drawn as wide as they were out of the sample, on the last weeks of the history itself.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

WEEK: Final = 7
MIN_DAYS: Final = 14  # fewer say neither how a series moves nor how it errs
SEASONAL_DAYS: Final = 3 * WEEK
_PATHS: Final = 2_000
_OFFSET: Final = 0.1  # of the mean day, added before the logarithm: a day of nothing is no infinite fall
_CALIBRATION_DAYS: Final = 14
_WIDEST: Final = 3.0


@dataclass(frozen=True, slots=True)
class Futures:
    """Drawn futures: one row per path, one column per day, in the unit of the history and never below 0."""

    paths: Array
    method: str

    def quantile(self, share: float) -> list[float]:
        """Return each day's quantile over all paths."""
        return [float(value) for value in np.quantile(self.paths, share, axis=0)]

    def total_quantile(self, share: float, days: int | None = None) -> float:
        """Return the quantile of the sum of the first days, or of all: days of one path err together."""
        return float(np.quantile(self.paths[:, :days].sum(axis=1), share))


def draw_futures(history: Sequence[float], days: int, *, seed: int = 0) -> Futures | None:
    """Draw futures of a daily series; `None` with fewer than 14 days. The same history and seed give the same."""
    values = np.asarray(history, dtype=np.float64)
    if len(values) < MIN_DAYS:
        return None
    mean = float(values.mean())
    if mean <= 0:
        return None  # there has been nothing to carry on
    offset = _OFFSET * mean
    logs = np.log(values + offset)
    is_seasonal = len(values) >= SEASONAL_DAYS
    drawn = _simulate(logs, days, is_seasonal, seed)
    if drawn is None:
        return None
    center = np.median(drawn, axis=0, keepdims=True)
    wide = center + (drawn - center) * _widening(logs, is_seasonal)
    # No day to come is more than ten times the dearest that ever was: an exponential of a normal has no such bound.
    ceiling = float(logs.max()) + np.log(10.0)
    paths = np.maximum(np.exp(np.minimum(wide, ceiling)) - offset, 0.0)
    return Futures(paths, "ETS(A,Ad,A), weekly" if is_seasonal else "ETS(A,Ad,N)")


def _widening(logs: Array, is_seasonal: bool) -> float:
    """Return by how much errors out of the sample exceed those that the model draws, from 1 to 3.

    The last two weeks are predicted from what came before, where enough came before.
    """
    held = logs[-_CALIBRATION_DAYS:]
    before = logs[:-_CALIBRATION_DAYS]
    if len(before) < (SEASONAL_DAYS if is_seasonal else MIN_DAYS):
        return 1.0 if not is_seasonal else 1.25
    drawn = _simulate(before, len(held), is_seasonal, 1)
    if drawn is None:
        return 1.0
    spread = np.maximum(drawn.std(axis=0), 1e-9)
    scores = (held - np.median(drawn, axis=0)) / spread
    return float(np.clip(np.sqrt(np.mean(scores**2)), 1.0, _WIDEST))


def _simulate(logs: Array, days: int, is_seasonal: bool, seed: int) -> Array | None:
    """Fit and draw: one row per path. `None` if the fit does not end in numbers."""
    # Here, for it takes seconds to load and most of what reads spending does not forecast it.
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that stops early still draws; what it draws is checked below
        model = ETSModel(
            logs,
            error="add",
            trend="add",
            damped_trend=True,
            seasonal="add" if is_seasonal else None,
            seasonal_periods=WEEK if is_seasonal else None,
            initialization_method="heuristic",
        )
        fitted = model.fit(disp=False, maxiter=100)
        source = np.random.default_rng(seed)
        drawn = np.asarray(fitted.simulate(days, anchor="end", repetitions=_PATHS, rng=source), dtype=np.float64)
    paths = drawn.reshape(days, _PATHS).T
    return paths if bool(np.isfinite(paths).all()) else None
