"""Estimates output tokens as a quantile of the model's earlier answers to the tenant."""

import math
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from backends.processes.native import mypyc_attr

DEFAULT_TOKENS: Final = 512
MAX_PAIRS: Final = 8192
ENOUGH_ANSWERS: Final = 20
MEMORY_ANSWERS: Final = 200
RELATIVE_ERROR: Final = 0.05
_TOLERANCE: Final = 0.2  # relative; an answer that needs more extends its reservation while it runs

# Reasons of an answer that ended by itself. Any other end (a limit, a disconnect, a failure) cut it: it would have been
# longer.
_OWN_ENDS: Final = frozenset({"stop", "tool_calls", "function_call", "content_filter"})
_MOST_TOKENS: Final = 1 << 20
_RECOMPUTE_AFTER: Final = 16  # answers
_LARGEST_WEIGHT: Final = 1e6
_ROUNDING: Final = 1e-6  # tolerance for sums of 32-bit weights


def _upper_bounds() -> Iterator[int]:
    bound = 1
    while bound < _MOST_TOKENS:
        yield bound
        bound = max(bound + 1, math.floor(bound * (1 + RELATIVE_ERROR)))
    yield _MOST_TOKENS


_BOUNDS: Final = tuple(_upper_bounds())  # the largest count of each of about 250 bins; exact below 40 tokens


class Lengths:
    """Output lengths of one kind of request in log-spaced bins, weighted by age.

    An answer's weight falls to 1/e while `memory` further ones arrive: after a change of behaviour, three times as many
    are enough to forget the old distribution. Uses 1.5 KB, and 1.2 KB more once an answer was cut.

    A cut answer means "at least this many tokens". Its weight is distributed over the longer answers in proportion
    (Kaplan and Meier, 1958: a cut answer leaves the number at risk without ending). This is valid if cuts do not occur
    earlier in answers that would have been longer anyway.
    """

    __slots__ = (
        "_cuts",
        "_ends",
        "_growth",
        "_quantile",
        "_since",
        "_weight",
        "answers",
        "at_least",
        "tokens",
    )

    def __init__(self, quantile: float, memory: int) -> None:
        self._quantile = quantile
        self._growth = math.exp(1 / memory)
        self._weight = 1.0  # of the next answer
        self._ends = array("f", bytes(4 * len(_BOUNDS)))
        self._cuts: array[float] | None = None
        self._since = 0
        self.answers = 0  # that ended by themselves
        self.tokens: int | None = None  # the quantile, never below the true one, at most 5 % above
        self.at_least = 0  # if cuts hide the quantile: the longest answer seen

    def add(self, tokens: int, *, is_cut: bool) -> None:
        """Add an answer."""
        place = bisect_left(_BOUNDS, tokens if tokens < _MOST_TOKENS else _MOST_TOKENS)
        if is_cut:
            if self._cuts is None:
                self._cuts = array("f", bytes(4 * len(_BOUNDS)))
            self._cuts[place] += self._weight
        else:
            self._ends[place] += self._weight
            self.answers += 1
        self._weight *= self._growth
        if self._weight > _LARGEST_WEIGHT:
            self._rescale()
        self._since += 1
        if self._since >= _RECOMPUTE_AFTER or (self.answers == ENOUGH_ANSWERS and not is_cut):
            self._since = 0
            self._recompute()

    def _rescale(self) -> None:
        shrink = 1 / self._weight
        self._ends = array("f", [weight * shrink for weight in self._ends])
        if self._cuts is not None:
            self._cuts = array("f", [weight * shrink for weight in self._cuts])
        self._weight = 1.0

    def _recompute(self) -> None:
        if self._cuts is None:  # then it is the plain quantile, found in one pass
            ended_by = list(accumulate(self._ends))
            place = bisect_left(ended_by, ended_by[-1] * (self._quantile - _ROUNDING))
            self.tokens, self.at_least = _BOUNDS[place], 0
            return
        cuts = self._cuts
        at_risk = math.fsum(self._ends) + math.fsum(cuts)
        longer, place_of_longest = 1.0, 0
        wanted = 1 - self._quantile + _ROUNDING
        for place, (ended, cut) in enumerate(zip(self._ends, cuts, strict=True)):
            if ended:
                longer *= 1 - ended / max(at_risk, ended)
                if longer <= wanted:
                    self.tokens, self.at_least = _BOUNDS[place], 0
                    return
            if ended or cut:
                place_of_longest = place
            at_risk -= ended + cut
        self.tokens, self.at_least = None, _BOUNDS[place_of_longest]


@mypyc_attr(allow_interpreted_subclasses=True)  # tests use their own subclasses
class OutputEstimator:
    """Learns from settled requests; all calls take constant time. `quantile` is between 0 and 1.

    A pair of tenant and model with fewer than 20 answers uses the model's quantile over all tenants, a model with fewer
    than 20 the configured default. If limits cut so many answers that the quantile is unknown, the estimate is the
    longest answer seen or the estimate without the pair, whichever is higher.
    """

    def __init__(
        self,
        quantile: float = 0.9,
        *,
        default_tokens: int = DEFAULT_TOKENS,
        memory: int = MEMORY_ANSWERS,
        max_pairs: int = MAX_PAIRS,
    ) -> None:
        if not 0 < quantile < 1:
            raise ValueError(f"the quantile of output estimates must be between 0 and 1, not {quantile}")
        self._quantile = quantile
        self._default_tokens = default_tokens
        self._memory = memory
        self._max_pairs = max_pairs
        # By (tenant, model) and, over all tenants, (model,); the most recently updated is last.
        self._lengths: OrderedDict[tuple[str, ...], Lengths] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lengths)

    def learn(self, tenant: str, model: str, output_tokens: int, finish_reason: str, choices: int = 1) -> None:
        """Add a settled request's output over all choices; each choice is assumed to have their mean length.

        Finish reasons other than stop, tool_calls, function_call and content_filter, including an empty one, mean that
        the answer was cut. A cut answer without output is ignored.
        """
        learn_length(self.lengths(tenant, model), output_tokens, finish_reason, choices)

    def lengths(self, tenant: str, model: str) -> list[Lengths]:
        """Return the lengths of a model's answers, and of those to a tenant, for `learn_length` to update."""
        found: list[Lengths] = []
        for key in ((model,), (tenant, model)):
            lengths = self._lengths.get(key)
            if lengths is None:
                lengths = self._lengths[key] = Lengths(self._quantile, self._memory)
                if len(self._lengths) > self._max_pairs:
                    self._lengths.popitem(last=False)
            else:
                self._lengths.move_to_end(key)
            found.append(lengths)
        return found

    def estimate(self, tenant: str, model: str, max_tokens: int | None = None, choices: int = 1) -> int:
        """Return the output tokens to reserve for all choices, each at most `max_tokens`."""
        own = self._lengths.get((tenant, model))
        if own is not None and own.tokens is not None and own.answers >= ENOUGH_ANSWERS:
            each = own.tokens
        else:
            each = self._known((tenant, model), self._known((model,), self._default_tokens))
        if max_tokens is not None and max_tokens < each:
            each = max_tokens
        return each * choices

    def _known(self, key: tuple[str, ...], otherwise: int) -> int:
        lengths = self._lengths.get(key)
        if lengths is None or (lengths.tokens is None and not lengths.at_least):
            return otherwise
        if lengths.tokens is None:
            return max(lengths.at_least, otherwise)
        return lengths.tokens if lengths.answers >= ENOUGH_ANSWERS else otherwise


def learn_length(known: Iterable[Lengths], output_tokens: int, finish_reason: str, choices: int = 1) -> None:
    """Add a settled request's output, as `OutputEstimator.learn`."""
    is_cut = finish_reason not in _OWN_ENDS
    if output_tokens < 0 or (is_cut and not output_tokens):
        return
    each = output_tokens if choices <= 1 else -(-output_tokens // choices)
    for lengths in known:
        lengths.add(each, is_cut=is_cut)


class SteadyEstimates:
    """Estimates of an OutputEstimator that change only if they differ by more than a fifth from the previous one.

    A refused request gets a retry slot of the size that it asked for. If its estimate grew by a few tokens before the
    retry, the slot would be too small, and the wait that the client was told would be wrong.
    """

    def __init__(self, estimator: OutputEstimator) -> None:
        self._estimator = estimator
        self._said: OrderedDict[tuple[str, str], int] = OrderedDict()

    def learn(self, tenant: str, model: str, output_tokens: int, finish_reason: str, choices: int = 1) -> None:
        """Add a settled request, as the estimator does."""
        self._estimator.learn(tenant, model, output_tokens, finish_reason, choices)

    def lengths(self, tenant: str, model: str) -> list[Lengths]:
        """Return what the estimator has learned about a pair; it continues to learn."""
        return self._estimator.lengths(tenant, model)

    def estimate(self, tenant: str, model: str, max_tokens: int | None = None, choices: int = 1) -> int:
        """Return the output tokens to reserve for all choices, each at most `max_tokens`."""
        newest = self._estimator.estimate(tenant, model)
        said = self._said.get((tenant, model))
        if newest != said and (said is None or abs(newest - said) > _TOLERANCE * said):
            said = self._said[tenant, model] = newest
            if len(self._said) > MAX_PAIRS:
                self._said.popitem(last=False)
        return (said if max_tokens is None or said < max_tokens else max_tokens) * choices
