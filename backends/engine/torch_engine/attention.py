"""Attention over a paged KV cache, plugged into Hugging Face models through their attention interface.

The runner describes a step once (`StepLayout`); every layer then calls `paged_attention` with it. A step's tokens are
packed into one sequence: first the rows of the decode buffer, by class, then the segments that read the pool.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from contracts.errors import ConfigurationError

NAME: Final = "tollkeeper_paged"
# Arguments for other than plain causal attention, which are refused because they would be ignored.
_UNSUPPORTED: Final = ("sliding_window", "softcap", "s_aux", "sinks", "head_mask", "position_bias", "alibi")


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Rows of one class of the decode buffer: packed tokens `start` to `end`, one each, in row order.

    `data` is [2, layer, row, head, token, size]; `positions` are the positions of the rows' new tokens, `longest` is
    the largest number of tokens in a row. `bias` [rows * heads, 1, longest] is minus infinity on padding, `None`
    without padding.
    """

    start: int
    end: int
    data: torch.Tensor
    rows: torch.Tensor
    positions: torch.Tensor
    longest: int
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Segment:
    """Packed tokens `start` to `end` of one sequence that reads the pool.

    `slots` are those of its whole context, these tokens included; `None` if there is no earlier context. `mask`
    [tokens, context] is True where attention is allowed; `None` for one token or plain causal attention.
    """

    start: int
    end: int
    slots: torch.Tensor | None
    mask: torch.Tensor | None


@dataclass(slots=True)
class StepLayout:
    """Describes the attention of a step's packed tokens, and where their keys and values are written.

    `pool` is [2, layer, slot, head, size]; tokens from `pool_start` on are written to `pool_slots` in it. `calls`
    counts attention calls, so that loading detects layers with another kind of attention.
    """

    groups: list[DecodeGroup]
    segments: list[Segment]
    pool: torch.Tensor
    pool_start: int
    pool_slots: torch.Tensor | None
    calls: int = 0


def paged_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    layout: StepLayout | None = None,
    **extras: object,
) -> tuple[torch.Tensor, None]:
    """Compute attention for one layer. `query` is [1, heads, tokens, size], `key` and `value` [1, KV heads, tokens,
    size].

    Returns [1, tokens, heads, size]. Raises ConfigurationError for unsupported kinds of attention.
    """
    if layout is None:
        raise ConfigurationError(f"{type(module).__name__} does not pass on what paged attention needs")
    for name in _UNSUPPORTED:
        if extras.get(name) is not None:
            raise ConfigurationError(f"{type(module).__name__} attends with {name}, which this engine cannot serve")
    if key.shape != value.shape or query.shape[1] % key.shape[1]:
        raise ConfigurationError(f"{type(module).__name__} has keys and values of different shapes")
    layout.calls += 1
    layer = module.layer_idx
    assert isinstance(layer, int)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if len(layout.groups) == 1 and not layout.segments:
        return _attend_group(layout.groups[0], layer, query, key, value, scale).unsqueeze(0), None
    if layout.pool_slots is not None:
        start = layout.pool_start
        layout.pool[0, layer].index_copy_(0, layout.pool_slots, key[0, :, start:].transpose(0, 1))
        layout.pool[1, layer].index_copy_(0, layout.pool_slots, value[0, :, start:].transpose(0, 1))
    parts = [_attend_group(group, layer, query, key, value, scale) for group in layout.groups]
    parts += [_attend_segment(segment, layer, layout.pool, query, key, value, scale) for segment in layout.segments]
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).unsqueeze(0), None


def _attend_group(
    group: DecodeGroup, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> torch.Tensor:
    """Write each row's new token to the buffer, then compute attention over its rows in place. Return [rows, heads,
    size].
    """
    start, end = group.start, group.end
    keys, values = group.data[0, layer], group.data[1, layer]
    keys[group.rows, :, group.positions] = key[0, :, start:end].transpose(0, 1)
    values[group.rows, :, group.positions] = value[0, :, start:end].transpose(0, 1)
    rows, (heads, _, size) = end - start, keys.shape[1:]
    # Query heads that share a KV head become rows of one product, so that keys are read once.
    folded = query[0, :, start:end].transpose(0, 1).reshape(rows * heads, -1, size)
    near = keys[:rows].flatten(0, 1)[:, : group.longest]
    far = values[:rows].flatten(0, 1)[:, : group.longest]
    if query.dtype == torch.float32:
        # For one query per row on a CPU, plain products are faster than the fused kernel, and exact in float32.
        if group.bias is None:
            scores = torch.bmm(folded * scale, near.transpose(1, 2))
        else:
            scores = torch.baddbmm(group.bias, folded, near.transpose(1, 2), alpha=scale)
        mixed = torch.bmm(torch.softmax(scores, -1), far)
    else:
        mixed = functional.scaled_dot_product_attention(
            folded.unsqueeze(1), near.unsqueeze(1), far.unsqueeze(1), scale=scale,
            attn_mask=None if group.bias is None else group.bias.unsqueeze(1),
        ).squeeze(1)  # fmt: skip
    return mixed.view(rows, -1, size)


def _attend_segment(
    segment: Segment,
    layer: int,
    pool: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Compute attention for consecutive tokens of one sequence. Return [tokens, heads, size]."""
    start, end = segment.start, segment.end
    if segment.slots is None:
        keys, values = key[:, :, start:end], value[:, :, start:end]
    else:
        keys = pool[0, layer].index_select(0, segment.slots).transpose(0, 1).unsqueeze(0)
        values = pool[1, layer].index_select(0, segment.slots).transpose(0, 1).unsqueeze(0)
    attended = functional.scaled_dot_product_attention(
        query[:, :, start:end],
        keys,
        values,
        attn_mask=segment.mask,
        is_causal=segment.mask is None and end - start > 1,
        scale=scale,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return attended[0].transpose(0, 1)
