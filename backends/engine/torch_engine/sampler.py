"""Samples a step's tokens from their logits, all rows at once.

In vLLM's order: grammar, bias, penalties, minimum length, temperature, min-p, top-k, top-p. Log probabilities are the
model's own, before any of these.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from backends.engine.torch_engine.constraint import Constraint
from backends.engine.torch_engine.sampling_state import SamplingState
from contracts.engine.wire import Sampling

NO_TOKEN: Final = -1
_INFINITE = float("inf")
_FIRST_TOKENS = 256
_SORTED_WHOLE = 16_384  # up to this size, sorting all tokens is faster than selecting the top ones


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A sampled token's log probability, and the most likely tokens with theirs, best first."""

    logprob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The tokens of a step, and their scores if requested. NO_TOKEN: the row's logits were invalid."""

    token_ids: list[int]
    scores: list[ScoredToken | None]


@torch.inference_mode()
def choose(logits: torch.Tensor, states: Sequence[SamplingState], constraints: Sequence[Constraint | None]) -> Chosen:
    """Choose one token per row. `logits` [rows, vocabulary], float32, may be overwritten; the states stay unchanged.

    A row without allowed tokens gets its most likely token. A row with a NaN or a positive infinity, from the model or
    from its penalties and bias, gets NO_TOKEN; other rows are not affected.
    """
    constrained = any(constraint is not None for constraint in constraints)
    if not constrained and all(state.is_plain for state in states):
        return Chosen(_likeliest(logits)[0].tolist(), [None] * len(states))
    scored = [place for place, state in enumerate(states) if state.sampling.logprobs is not None]
    raw = torch.log_softmax(logits[scored], -1) if scored else None
    if constrained:
        _apply_constraints(logits, constraints)
    _apply_bias(logits, states)
    _apply_penalties(logits, states)
    _apply_min_tokens(logits, states, constraints)
    tokens, is_drawable = _likeliest(logits)
    random = [place for place, state in enumerate(states) if not state.is_greedy]
    if random:
        rows = torch.tensor(random, device=logits.device)
        drawn = _draw(logits[rows], [states[place] for place in random])
        tokens[rows] = torch.where(is_drawable[rows], drawn, tokens[rows])
    token_ids = tokens.tolist()
    scores: list[ScoredToken | None] = [None] * len(states)
    if raw is not None:
        for line, place in enumerate(scored):
            if token_ids[place] == NO_TOKEN:
                continue
            scores[place] = _score(raw[line], token_ids[place], states[place].sampling.logprobs or 0)
    return Chosen(token_ids, scores)


def _likeliest(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's most likely token, or NO_TOKEN, and whether the row is a valid distribution."""
    best, tokens = logits.max(-1)  # torch's maximum of a row with a NaN is NaN
    is_broken = torch.isnan(best) | (best == _INFINITE)
    return tokens.masked_fill(is_broken, NO_TOKEN), torch.isfinite(best)


def _score(logprobs: torch.Tensor, token_id: int, alternatives: int) -> ScoredToken:
    top: list[tuple[int, float]] = []
    if alternatives:
        values, indices = logprobs.topk(min(alternatives, logprobs.shape[-1]))
        top = list(zip(indices.tolist(), values.tolist(), strict=True))
    return ScoredToken(float(logprobs[token_id]), top)


def _apply_constraints(logits: torch.Tensor, constraints: Sequence[Constraint | None]) -> None:
    vocabulary = logits.shape[-1]
    bits = np.full((len(constraints), (vocabulary + 31) // 32), -1, dtype=np.int32)
    for place, constraint in enumerate(constraints):
        if constraint is not None:
            constraint.fill(bits[place])
    allowed = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, :vocabulary]
    logits.masked_fill_(torch.from_numpy(allowed == 0).to(logits.device), -_INFINITE)


def _apply_bias(logits: torch.Tensor, states: Sequence[SamplingState]) -> None:
    for place, state in enumerate(states):
        if len(state.bias_ids):
            ids = torch.from_numpy(state.bias_ids).to(logits.device)
            logits[place, ids] += torch.from_numpy(state.bias).to(logits.device)


def _apply_penalties(logits: torch.Tensor, states: Sequence[SamplingState]) -> None:
    """Apply presence and frequency penalties for the output (OpenAI's definition), repetition penalty for the prompt
    too (CTRL).
    """
    places = [place for place, state in enumerate(states) if state.counts is not None]
    if not places:
        return
    counts = [counts for state in states if (counts := state.counts) is not None]
    outputs = torch.from_numpy(np.stack([one.outputs for one in counts])).to(logits.device)
    in_prompt = torch.from_numpy(np.stack([one.in_prompt for one in counts])).to(logits.device)
    column = _column_maker(logits, [states[place] for place in places])
    chosen = logits[places]
    repetition = torch.where((outputs > 0) | in_prompt, column(lambda one: one.repetition_penalty), 1.0)
    chosen = torch.where(chosen > 0, chosen / repetition, chosen * repetition)
    chosen -= outputs * column(lambda one: one.frequency_penalty)
    chosen -= (outputs > 0) * column(lambda one: one.presence_penalty)
    logits[places] = chosen


def _apply_min_tokens(
    logits: torch.Tensor, states: Sequence[SamplingState], constraints: Sequence[Constraint | None]
) -> None:
    for place, (state, constraint) in enumerate(zip(states, constraints, strict=True)):
        # A complete grammar allows only the end, even below the minimum length.
        if constraint is None and state.masks_end:
            logits[place, torch.from_numpy(state.end_ids).to(logits.device)] = -_INFINITE


def _column_maker(
    logits: torch.Tensor, states: Sequence[SamplingState]
) -> Callable[[Callable[[Sampling], float]], torch.Tensor]:
    def column(of: Callable[[Sampling], float]) -> torch.Tensor:
        values = [[of(state.sampling)] for state in states]
        return torch.tensor(values, dtype=logits.dtype, device=logits.device)

    return column


def _draw(logits: torch.Tensor, states: Sequence[SamplingState]) -> torch.Tensor:
    """Sample one token per row with the row's own random number; any token if the row's maximum is not finite."""
    column = _column_maker(logits, states)
    uniform = torch.tensor([[state.uniform()] for state in states], dtype=torch.float64, device=logits.device)
    # Subtracts the maximum before dividing: then a small temperature can only overflow to -inf, probability 0.
    shifted = logits - logits.amax(-1, keepdim=True)
    probabilities = torch.softmax(shifted / column(lambda one: one.temperature), -1)
    if any(state.sampling.min_p > 0 for state in states):
        floor = probabilities.amax(-1, keepdim=True) * column(lambda one: one.min_p)
        probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
    cut = [place for place, state in enumerate(states) if state.sampling.top_k > 0 or state.sampling.top_p < 1.0]
    if not cut:
        return _invert(probabilities, uniform)
    if len(cut) == len(states):
        kept, order = _keep_top(probabilities, states)
        return order.gather(-1, _invert(kept, uniform)[:, None])[:, 0]
    # Sorting is expensive: only rows that need it are sorted.
    tokens = _invert(probabilities, uniform)
    rows = torch.tensor(cut, device=logits.device)
    kept, order = _keep_top(probabilities[rows], [states[place] for place in cut])
    tokens[rows] = order.gather(-1, _invert(kept, uniform[rows])[:, None])[:, 0]
    return tokens


def _invert(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return for each row the first index where its cumulative distribution exceeds `uniform`, never one with
    probability 0.

    Always an index within the row, even if its probabilities are NaN: another one would end the process on a GPU.
    """
    cumulative = probabilities.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:].contiguous()
    places = torch.searchsorted(cumulative, uniform * total, right=True)
    last = torch.searchsorted(cumulative, total, right=False).clamp_(max=probabilities.shape[-1] - 1)
    return torch.minimum(places, last)[:, 0]


def _keep_top(probabilities: torch.Tensor, states: Sequence[SamplingState]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the probabilities of the most likely tokens, highest first, 0 for those that top-k and top-p exclude, and
    their ids.

    Top-p applies after top-k. In a large vocabulary the first few hundred tokens nearly always suffice; if not, all are
    sorted.
    """
    size = probabilities.shape[-1]
    column = _column_maker(probabilities, states)
    limits = [state.sampling.top_k if 0 < state.sampling.top_k < size else size for state in states]
    limit = torch.tensor(limits, device=probabilities.device)[:, None]
    top_p = column(lambda one: one.top_p)
    whole = probabilities.sum(-1, keepdim=True)
    width = min(size, max(_FIRST_TOKENS, *(one for one in limits if one < size), 1))
    if size <= _SORTED_WHOLE and probabilities.device.type == "cpu":
        ordered, order = _sort(probabilities)
    else:
        ordered, order = probabilities.topk(width, dim=-1)
        if width < size and bool(((ordered.sum(-1, keepdim=True) < top_p * whole) & (limit == size)).any()):
            ordered, order = _sort(probabilities)
    ranks = torch.arange(ordered.shape[-1], device=ordered.device)
    ordered = ordered.masked_fill(ranks >= limit, 0.0)
    total = torch.where(limit == size, whole, ordered.sum(-1, keepdim=True))
    # A token is kept if those before it do not reach top-p; the first always is.
    before = ordered.cumsum(-1) - ordered
    outside = (before >= top_p * total) & (top_p < 1.0) & (ranks > 0)
    return ordered.masked_fill(outside, 0.0), order


def _sort(probabilities: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort each row, best first. On a CPU with numpy, whose vectorised sort is six times as fast as torch's."""
    if probabilities.device.type != "cpu":
        ordered, order = probabilities.sort(dim=-1, descending=True)
        return ordered, order
    order = torch.from_numpy(np.argsort(-probabilities.numpy(), axis=-1))
    return probabilities.gather(-1, order), order
