"""Simulated future paths of a daily series: exponential smoothing with a weekly season, by statsmodels.

The model is ETS(A,Ad,A) of Hyndman and others (2008) on logarithms, so that season and errors are relative to the
level; paths are drawn from it. In-sample errors are too small, as the parameters were fitted to them, so drawn errors
are scaled to the out-of-sample errors of the history's last weeks.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

WEEK: Final = 7
MIN_DAYS: Final = 14  # fewer days give neither a trend nor errors
SEASONAL_DAYS: Final = 3 * WEEK
_PATHS: Final = 2_000
_OFFSET: Final = 0.1  # share of the mean day, added before the logarithm, which has no value at 0
_CALIBRATION_DAYS: Final = 14
_WIDEST: Final = 3.0


@dataclass(frozen=True, slots=True)
class Futures:
    """Simulated paths: one row per path, one column per day, in the unit of the history and at least 0."""

    paths: Array
    method: str

    def quantile(self, share: float) -> list[float]:
        """Return each day's quantile over all paths."""
        return [float(value) for value in np.quantile(self.paths, share, axis=0)]

    def total_quantile(self, share: float, days: int | None = None) -> float:
        """Return the quantile of paths' sums over the first `days` (all by default); a path's errors are correlated."""
        return float(np.quantile(self.paths[:, :days].sum(axis=1), share))


def draw_futures(history: Sequence[float], days: int, *, seed: int = 0) -> Futures | None:
    """Simulate future days of a daily series; `None` with fewer than 14 days. Deterministic for a seed."""
    values = np.asarray(history, dtype=np.float64)
    if len(values) < MIN_DAYS:
        return None
    mean = float(values.mean())
    if mean <= 0:
        return None  # only zeros: nothing to extrapolate
    offset = _OFFSET * mean
    logs = np.log(values + offset)
    is_seasonal = len(values) >= SEASONAL_DAYS
    drawn = _simulate(logs, days, is_seasonal, seed)
    if drawn is None:
        return None
    center = np.median(drawn, axis=0, keepdims=True)
    wide = center + (drawn - center) * _widening(logs, is_seasonal)
    # Days are limited to ten times the highest one of the history: a log-normal has no upper limit.
    ceiling = float(logs.max()) + np.log(10.0)
    paths = np.maximum(np.exp(np.minimum(wide, ceiling)) - offset, 0.0)
    return Futures(paths, "ETS(A,Ad,A), weekly" if is_seasonal else "ETS(A,Ad,N)")


def _widening(logs: Array, is_seasonal: bool) -> float:
    """Return the ratio of out-of-sample errors to the model's errors, from 1 to 3.

    The last two weeks are predicted from the days before them, if these are enough.
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
    """Fit the model and draw paths, one per row. `None` if a result is not finite."""
    # imported here, as it takes seconds to load and most readers of spending do not forecast
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that did not converge is used too; its paths are checked below
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
