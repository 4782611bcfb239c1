"""Predicts the duration of an engine step from its composition, for `steptime-as/1`.

A step's time is the sum of six parts: the linear layers, `token_ns * max(tokens, ridge_tokens)` (below the ridge it is
dominated by reading the weights, above it by computing; a soft ridge smooths the corner, because layers differ); each
row's attention; each row's sampling; a fixed part; and the launch, if the GPU is idle meanwhile.

The same functions are used to split measured steps, by the planner and the router for predictions, and for the savings
of a prefix cache. `algorithms/gpu_time/step_fit.py` fits the coefficients. Times are nanoseconds of one engine;
multiplied by its ranks they are GPU time.
"""

import math
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

PREFILL: Final = 0
DECODE: Final = 1
ENCODE: Final = 2

DEFAULT_CHUNK_TOKENS: Final = 8192


class StepRow(msgspec.Struct, frozen=True, gc=False):
    """One request's part of one step. A step's time depends only on the first three fields.

    `scheduled` tokens are computed in the step (including drafts and recomputed ones); `context` tokens were in the KV
    cache before it (including a prefix hit); `logits` rows are sampled: 0 for a chunk that does not end its prompt.
    `cached` is the part of the context from a prefix hit; `recompute` the number of scheduled tokens that had been
    computed before a preemption; `phase` is 0 prefill, 1 decode, 2 encode; `aborted`: the request had ended already.
    """

    scheduled: int
    context: int
    logits: int = 1
    cached: int = 0
    phase: int = PREFILL
    recompute: int = 0
    drafted: int = 0
    accepted: int = 0
    aborted: bool = False
    shared: int = 0  # context tokens whose reads are saved because other rows of the step read the same keys


class StepComposition(msgspec.Struct, frozen=True, gc=False):
    """The facts that a step's time depends on. Rows of one token are summed up, because their attention is linear.

    `reads` is the sum of (context + 1 - shared) over rows with one scheduled token; `chunks` are (scheduled, context)
    of all longer rows. `is_dry`: the GPU was idle before the step, so that it waits for each launch.
    """

    tokens: int
    requests: int
    logits: int
    reads: int
    chunks: tuple[tuple[int, int], ...] = ()
    is_dry: bool = False


def compose(rows: Iterable[StepRow], *, is_dry: bool = False) -> StepComposition:
    """Return the composition of rows; those without scheduled tokens are skipped. Raises ValueError for a negative
    count.
    """
    tokens = requests = logits = reads = 0
    chunks = []
    for row in rows:
        scheduled = row.scheduled
        if scheduled <= 0 or row.context < 0:
            _check(row)
            continue
        tokens += scheduled
        requests += 1
        logits += row.logits
        if scheduled == 1:
            reads += row.context + 1 - row.shared
        else:
            chunks.append((scheduled, row.context))
    return StepComposition(tokens, requests, logits, reads, tuple(chunks), is_dry)


def pairs(scheduled: int, context: int) -> int:
    """Return the number of (query, key) pairs of causal attention: each token attends to the context, earlier tokens
    and itself.
    """
    return scheduled * context + scheduled * (scheduled + 1) // 2


class StepModel(msgspec.Struct, frozen=True, kw_only=True):
    """Fitted, versioned coefficients in nanoseconds. `version` changes exactly when a coefficient does.

    `mape` and `p90_error` are relative errors over the `samples` steps of the fit; `confidence` is 0 to 1, see
    `algorithms/gpu_time/step_fit.py`. The linear layers take the p-norm of tokens and ridge, p = 1 / `ridge_softness`:
    the larger of both at 0, their sum at 1. A row's attention takes the larger of computing its (query, key) pairs and
    reading its keys and values, so that a short chunk over a long context costs as much as a decode.
    """

    token_ns: float
    ridge_tokens: float
    pair_ns: float
    read_ns: float
    logit_ns: float
    fixed_ns: float
    ridge_softness: float = 0.0
    launch_ns: float = 0.0
    number: int = 0
    samples: int = 0
    mape: float | None = None
    p90_error: float | None = None
    confidence: float = 0.0

    def __post_init__(self) -> None:
        for name in (*COEFFICIENTS, "ridge_tokens"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"step model coefficient {name} must be finite and >= 0, not {value}")
        if self.read_ns < self.pair_ns:
            raise ValueError(f"reading a key ({self.read_ns} ns) cannot take less than one pair ({self.pair_ns} ns)")
        if not 0 <= self.ridge_softness <= 1:
            raise ValueError(f"ridge_softness must be between 0 and 1, not {self.ridge_softness}")
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence must be between 0 and 1, not {self.confidence}")

    @property
    def version(self) -> str:
        """Return the version: the model's number within this engine process, and a hash of the coefficients."""
        shape = (self.ridge_tokens, self.ridge_softness)
        return _version(self.number, *(getattr(self, name) for name in COEFFICIENTS), *shape)

    def linear_tokens(self, tokens: float) -> float:
        """Return the time of the linear layers for `tokens`, as a number of tokens at full rate: a smooth maximum of
        `tokens` and `ridge_tokens`.

        It is convex, and its share per token never rises with more tokens, so that a split by tokens stays in the core
        (cooperative game theory).
        """
        ridge, softness = self.ridge_tokens, self.ridge_softness
        if not softness:
            return max(tokens, ridge)
        larger, smaller = (tokens, ridge) if tokens > ridge else (ridge, tokens)
        return larger * (1.0 + (smaller / larger) ** (1.0 / softness)) ** softness if smaller else larger

    def weights(self, rows: Sequence[StepRow], *, is_dry: bool = False) -> list[float]:
        """Return each row's part of the predicted time in nanoseconds; 0 for a row without scheduled tokens.

        Tokens are equal, so each pays the average cost of the linear layers (their Aumann-Shapley price); attention and
        sampling are the row's own; the fixed part and the launch are shared equally. So no set of rows is charged more
        than a step of only these rows is predicted to take. Raises ValueError for a negative count.
        """
        tokens = requests = 0
        for row in rows:
            if row.scheduled > 0:
                tokens += row.scheduled
                requests += 1
        if not tokens:
            for row in rows:
                _check(row)
            return [0.0] * len(rows)
        token_ns = self.token_ns * self.linear_tokens(tokens) / tokens
        each_ns = (self.fixed_ns + self.launch_ns * is_dry) / requests
        pair_ns, read_ns, logit_ns = self.pair_ns, self.read_ns, self.logit_ns
        single_ns = token_ns + each_ns
        weights = []
        for row in rows:
            scheduled, context = row.scheduled, row.context
            if scheduled <= 0 or context < 0:
                _check(row)
                weights.append(0.0)
            elif scheduled == 1:
                weights.append(single_ns + read_ns * (context + 1 - row.shared) + logit_ns * row.logits)
            else:
                attention = max(pair_ns * pairs(scheduled, context), read_ns * (context + scheduled))
                weights.append(token_ns * scheduled + attention + logit_ns * row.logits + each_ns)
        return weights

    def predict_ns(self, rows: Iterable[StepRow], *, is_dry: bool = False) -> float:
        """Return the predicted time of a step with exactly these rows."""
        return self.predict_composition_ns(compose(rows, is_dry=is_dry))

    def predict_composition_ns(self, step: StepComposition) -> float:
        """Return the predicted time of a step by its composition; 0 without scheduled tokens."""
        if not step.requests:
            return 0.0
        attention = self.read_ns * step.reads + sum(
            max(self.pair_ns * pairs(scheduled, context), self.read_ns * (context + scheduled))
            for scheduled, context in step.chunks
        )
        linear = self.token_ns * self.linear_tokens(step.tokens)
        return linear + attention + self.logit_ns * step.logits + self.fixed_ns + self.launch_ns * step.is_dry

    def decode_ns(self, requests: int, context_tokens: int) -> float:
        """Return the predicted time of one decode step of `requests` requests with `context_tokens` in total."""
        return self.predict_composition_ns(StepComposition(requests, requests, requests, context_tokens + requests))

    def prefill_ns(self, tokens: int, context: int = 0, *, chunk_tokens: int = DEFAULT_CHUNK_TOKENS) -> float:
        """Return the predicted time to prefill `tokens` after `context` cached ones, alone on the engine, in chunks."""
        done, total = 0, 0.0
        while done < tokens:
            scheduled = min(chunk_tokens, tokens - done)
            is_last = done + scheduled == tokens
            total += self.predict_ns((StepRow(scheduled, context + done, logits=int(is_last)),))
            done += scheduled
        return total

    def scaled(self, factor: float) -> "StepModel":
        """Return the model with all predictions multiplied by `factor`."""
        return msgspec.structs.replace(self, **{name: getattr(self, name) * factor for name in COEFFICIENTS})


# All coefficients that are times; the ridge is a number of tokens, and its softness has no unit.
COEFFICIENTS: Final = ("token_ns", "pair_ns", "read_ns", "logit_ns", "fixed_ns", "launch_ns")


@lru_cache(maxsize=64)  # read at every step
def _version(number: int, *coefficients: float) -> str:
    digest = zlib.crc32(repr(list(coefficients)).encode())
    return f"{number}.{digest:08x}"


def _check(row: StepRow) -> None:
    if row.scheduled < 0 or row.context < 0:
        raise ValueError(f"a step row cannot have {row.scheduled} scheduled and {row.context} context tokens")


# The model before any measurement: linear in tokens above a ridge, a fixed part, and attention in the ratio of a Llama
# of 8 billion parameters. The scale is meaningless: it is fitted to the first steps.
PRIOR: Final = StepModel(
    token_ns=1000.0,
    ridge_tokens=160.0,
    pair_ns=0.04,
    read_ns=1.6,
    logit_ns=250.0,
    fixed_ns=8000.0,
)
