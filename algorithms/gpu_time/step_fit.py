"""Fits a step model to measured steps: robust, non-negative, by relative error. Needs numpy, unlike the fitted model.

The ridge makes the problem non-linear, so it is searched on a grid, sharp and soft. For each ridge the six coefficients
are a non-negative least-squares problem, reweighted iteratively to minimise Huber's loss.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from algorithms.gpu_time.step_model import PRIOR, StepModel
from algorithms.gpu_time.step_samples import StepSample, regime

Array = npt.NDArray[np.float64]

MIN_SAMPLES: Final = 32  # with fewer, only the scale of the prior is fitted
PRIOR_CONFIDENCE: Final = 0.25
HALF_EVIDENCE_STEPS: Final = 64

# Powers of two from 1 to 4,096 tokens, refined around the best: the linear layers' ridge is about 10 on a CPU and 150
# to 400 on GPUs.
_RIDGES: Final = tuple(2.0**octave for octave in range(13))
_REFINEMENTS: Final = (0.5, 0.25, 0.125)  # octaves to either side
# Tried besides a sharp ridge. Fits a Llama of 8 billion parameters on an H200, whose layers differ in shape.
_SOFT: Final = 0.5
# Pairs per key from which a chunk is compute-bound: a few tens on GPUs; infinite if attention is always memory-bound.
_CROSSOVERS: Final = (4.0, 16.0, 64.0, 256.0, np.inf)
_CLEARLY_LESS: Final = 0.98
# Relative error up to which a step counts quadratically. Starts wide, to move away from a bad first solution.
_HUBER: Final = 0.03
_HUBER_ROUNDS: Final = (0.5, 0.2, 0.1, 0.05, *(8 * (_HUBER,)))
# Strength of the regularization towards the prior, for coefficients that the steps do not determine.
_PULL: Final = 1e-4
_SMALL_SHARE: Final = 0.01
_SETTLED: Final = 1e-4
_TINY: Final = 1e-30


def fit(samples: Sequence[StepSample], prior: StepModel = PRIOR, *, number: int = 1) -> StepModel:
    """Fit a model to steps, whose order does not matter. `number` becomes part of the version.

    With fewer than 32 steps the prior is only scaled to their median, with a confidence of at most 0.25. Steps without
    scheduled tokens or time are ignored; if none is left, the prior is returned unchanged. Confidence is evidence times
    accuracy: n / (n + 64) for n steps, times 1 - 2 * p90 relative error, at least 0.
    """
    usable = [sample for sample in samples if sample.is_usable]
    if not usable:
        return prior
    if any(prior.predict_composition_ns(sample.step) <= 0 for sample in usable):
        prior = PRIOR  # a model that predicts zero for a step cannot be scaled
    scaled = _scaled_prior(usable, prior)
    best = scaled
    if len(usable) >= MIN_SAMPLES:
        best = _Problem.of(usable, scaled).solve()
    errors = relative_errors(best, usable)
    p90 = float(np.quantile(errors, 0.9, method="inverted_cdf"))
    confidence = confidence_of(len(usable), p90)
    return msgspec.structs.replace(
        best,
        number=number,
        samples=len(usable),
        mape=float(errors.mean()),
        p90_error=p90,
        confidence=confidence if best is not scaled else min(confidence, PRIOR_CONFIDENCE),
    )


def confidence_of(steps: int, p90_error: float) -> float:
    """Return the confidence of a fit to this many steps: n / (n + 64) * (1 - 2 * p90), at least 0."""
    return steps / (steps + HALF_EVIDENCE_STEPS) * max(0.0, 1.0 - 2.0 * p90_error)


def relative_errors(model: StepModel, samples: Sequence[StepSample]) -> Array:
    """Return |T - predicted| / T of each step."""
    return np.array([abs(model.predict_composition_ns(one.step) / one.busy_ns - 1.0) for one in samples])


def _scaled_prior(samples: Sequence[StepSample], prior: StepModel) -> StepModel:
    ratios = [sample.busy_ns / prior.predict_composition_ns(sample.step) for sample in samples]
    return prior.scaled(float(np.median(ratios)))


@dataclass(frozen=True, slots=True)
class _Trial:
    """A model and its loss, in total and by regime."""

    model: StepModel
    loss: float
    by_regime: Array


@dataclass(frozen=True, slots=True)
class _Problem:
    """The steps as arrays, with one entry per step, or per chunk if noted."""

    busy: Array
    importance: Array  # weight of each step before its error is known; sums to 1
    regimes: npt.NDArray[np.int64]  # numbered from 0
    tokens: Array
    logits: Array
    reads: Array
    launches: Array  # 1 if the GPU was idle before
    chunk_step: npt.NDArray[np.int64]  # per chunk: index of its step
    chunk_pairs: Array
    chunk_reads: Array
    prior: StepModel

    @classmethod
    def of(cls, samples: Sequence[StepSample], prior: StepModel) -> "_Problem":
        names = [regime(sample.step) for sample in samples]
        counts = Counter(names)
        numbers = {name: number for number, name in enumerate(counts)}
        # The square root is a compromise between equal steps (steady decode dominates) and equal regimes (one odd step
        # dominates).
        importance = np.array([counts[name] ** -0.5 for name in names])
        chunks = np.array(
            [(place, *chunk) for place, one in enumerate(samples) for chunk in one.step.chunks], dtype=np.float64
        ).reshape(-1, 3)
        scheduled, context = chunks[:, 1], chunks[:, 2]
        return cls(
            busy=np.array([float(one.busy_ns) for one in samples]),
            importance=importance / importance.sum(),
            regimes=np.array([numbers[name] for name in names]),
            tokens=np.array([float(one.step.tokens) for one in samples]),
            logits=np.array([float(one.step.logits) for one in samples]),
            reads=np.array([float(one.step.reads) for one in samples]),
            launches=np.array([float(one.step.is_dry) for one in samples]),
            chunk_step=chunks[:, 0].astype(np.int64),
            chunk_pairs=scheduled * context + scheduled * (scheduled + 1) / 2,
            chunk_reads=context + scheduled,
            prior=prior,
        )

    def solve(self) -> StepModel:
        """Search the ridge, the crossover from memory-bound to compute-bound chunks, and the ridge's
        softness, in turn.
        """
        best = self._search(_crossover(self.prior), 0.0)
        for crossover in _CROSSOVERS:
            trial = self._fit_at(best.model.ridge_tokens, 0.0, crossover)
            if trial.loss < best.loss * _CLEARLY_LESS:
                best = trial
        # Try the crossover that follows from the best fit's own coefficients.
        trial = self._search(_crossover(best.model), 0.0)
        best = trial if trial.loss <= best.loss else best
        soft = self._search(_crossover(best.model), _SOFT)
        return soft.model if soft.loss < best.loss * _CLEARLY_LESS else best.model

    def _search(self, crossover: float, softness: float) -> _Trial:
        tried = {ridge: self._fit_at(ridge, softness, crossover) for ridge in _RIDGES}
        for octaves in _REFINEMENTS:
            best = min(tried, key=lambda ridge: tried[ridge].loss)
            for ridge in (max(best * 2**-octaves, _RIDGES[0]), min(best * 2**octaves, _RIDGES[-1])):
                tried[ridge] = self._fit_at(ridge, softness, crossover)
        return self._choose(list(tried.values()))

    def _choose(self, trials: Sequence[_Trial]) -> _Trial:
        """Of the trials within half a standard error of the lowest loss, return that with the ridge nearest to the
        prior's.

        The error is that of the difference, clustered by regime, because steps of one regime have similar errors (after
        the one standard error rule: Hastie, Tibshirani, Friedman 2009, 7.10). With a whole standard error, a single
        regime that contradicts the prior would be ignored.
        """
        best = min(trials, key=lambda trial: trial.loss)
        close = [
            trial
            for trial in trials
            if trial.loss - best.loss <= 0.5 * float(np.sqrt(((trial.by_regime - best.by_regime) ** 2).sum()))
        ]
        home = self.prior.ridge_tokens
        return min(close, key=lambda trial: (abs(np.log2(trial.model.ridge_tokens / home)), trial.loss))

    def _fit_at(self, ridge: float, softness: float, crossover: float) -> _Trial:
        """Fit with a given ridge, and with chunks compute-bound from `crossover` pairs per key on."""
        computes = self.chunk_pairs > crossover * self.chunk_reads
        count = len(self.busy)
        pairs = _sum_by(self.chunk_step, self.chunk_pairs * computes, count)
        reads = self.reads + _sum_by(self.chunk_step, self.chunk_reads * ~computes, count)
        # Reading costs at least as much as computing the same pairs: the pairs' coefficient plus a positive rest.
        columns = np.column_stack(
            [
                _linear_tokens(self.tokens, ridge, softness),
                pairs + reads,
                reads,
                self.logits,
                np.ones_like(self.busy),
                self.launches,
            ]
        )
        prior = self.prior
        shapes = (prior.token_ns, prior.pair_ns, prior.read_ns - prior.pair_ns, prior.logit_ns, prior.fixed_ns)
        start = np.array([*shapes, prior.launch_ns])
        token_ns, pair_ns, rest_ns, *others = map(float, _robust(columns, self.busy, self.importance, start))
        logit_ns, fixed_ns, launch_ns = others
        model = StepModel(
            token_ns=token_ns,
            ridge_tokens=ridge,
            pair_ns=pair_ns,
            read_ns=pair_ns + rest_ns,
            logit_ns=logit_ns,
            fixed_ns=fixed_ns,
            ridge_softness=softness,
            launch_ns=launch_ns,
        )
        # The loss of the model itself, which decides for each chunk whether it is compute-bound.
        losses = _huber_loss(_errors(self._predict(model), self.busy)[0]) * self.importance
        return _Trial(model, float(losses.sum()), _sum_by(self.regimes, losses))

    def _predict(self, model: StepModel) -> Array:
        chunks = np.maximum(model.pair_ns * self.chunk_pairs, model.read_ns * self.chunk_reads)
        attention = model.read_ns * self.reads + _sum_by(self.chunk_step, chunks, len(self.busy))
        linear = model.token_ns * _linear_tokens(self.tokens, model.ridge_tokens, model.ridge_softness)
        return linear + attention + model.logit_ns * self.logits + model.fixed_ns + model.launch_ns * self.launches


def _linear_tokens(tokens: Array, ridge: float, softness: float) -> Array:
    if not softness:
        return np.maximum(tokens, ridge)
    larger = np.maximum(tokens, ridge)
    return np.asarray(larger * (1 + (np.minimum(tokens, ridge) / larger) ** (1 / softness)) ** softness, np.float64)


def _sum_by(group: npt.NDArray[np.int64], values: Array, groups: int = 0) -> Array:
    """Return the sums of values by group number. `bincount` returns integers for an empty input, hence the
    conversion.
    """
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64)


def _crossover(model: StepModel) -> float:
    """Return the number of pairs that take as long as reading one key: chunks with more per key are compute-bound."""
    return model.read_ns / model.pair_ns if model.pair_ns > 0 else np.inf


def _huber_loss(errors: Array) -> Array:
    size = np.abs(errors)
    return np.where(size < _HUBER, size * size / 2, _HUBER * (size - _HUBER / 2))


def _robust(columns: Array, busy: Array, importance: Array, prior: Array) -> Array:
    """Minimise Huber's loss of the relative errors over coefficients >= 0.

    Errors are relative to the larger of the measured time and half the predicted one, so that a step with a time that
    is far too small cannot dominate. The prior is the starting point and the target of the regularization.
    """
    prior = prior * np.median(busy / (columns @ prior))
    # Scale columns by their mean share of the time, so that coefficients have similar sizes.
    scale = np.maximum((columns / np.maximum(busy, columns @ prior)[:, None] * importance[:, None]).sum(axis=0), _TINY)
    design = columns / scale
    solution = target = prior * scale
    # Stronger for coefficients that should be small, so that an unexplained rest goes to the prior's largest.
    pull = _PULL / np.maximum(target, _SMALL_SHARE)
    for width in _HUBER_ROUNDS:
        before = solution
        errors, relative_to = _errors(design @ solution, busy)
        weights = importance * np.minimum(1.0, width / np.maximum(np.abs(errors), _TINY))
        rows = design / relative_to[:, None]
        weighted = rows * weights[:, None]
        hold = pull * weights.sum()
        solution = _non_negative(weighted.T @ rows + np.diag(hold), weighted.T @ (busy / relative_to) + hold * target)
        if width == _HUBER and np.abs(solution - before).max() < _SETTLED:
            break
    return np.asarray(solution / scale, dtype=np.float64)


def _errors(predicted: Array, busy: Array) -> tuple[Array, Array]:
    relative_to = np.maximum(busy, predicted / 2)
    return (predicted - busy) / relative_to, relative_to


def _non_negative(gram: Array, gain: Array) -> Array:
    """Minimise x'Gx/2 - g'x over x >= 0 for positive definite G, by active sets (Lawson and Hanson 1974, ch. 23)."""
    size = len(gain)
    solution = np.asarray(np.linalg.solve(gram, gain), dtype=np.float64)
    if solution.min() >= 0:
        return solution
    solution = np.zeros(size)
    free = np.zeros(size, dtype=bool)
    tolerance = 1e-12 * float(np.abs(gain).max())
    for _ in range(8 * size):
        slope = np.where(free, -np.inf, gain - gram @ solution)
        entering = int(slope.argmax())
        if slope[entering] <= tolerance:
            break
        free[entering] = True
        while True:
            trial = np.zeros(size)
            trial[free] = np.linalg.solve(gram[np.ix_(free, free)], gain[free])
            blocked = free & (trial <= 0)
            if not blocked.any():
                break
            step = float((solution[blocked] / (solution[blocked] - trial[blocked])).min())
            solution = np.where(free, solution + step * (trial - solution), 0.0)
            free &= solution > 1e-15
        solution = trial
    return solution
