"""Savings by prompt caches by payer, and the cost of cache writes, at the price cards valid at the time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from analytics.prices.repricing import card_for
from analytics.prices.usage_groups import UsageGroup
from contracts.metering.usage import CACHE_READ_LEAVES, CACHE_WRITE_LEAVES, KINDS, LEAVES, Leaf, leaf_of
from contracts.pricing.prices import PriceBook


@dataclass(frozen=True, slots=True)
class CacheSaving:
    """One payer's savings by prompt caches on one model.

    `saved_pico_usd`: cost of the cached tokens as plain input, minus their actual cost. `write_pico_usd`: surcharge of
    cache writes over plain input. `saved_gpu_ns`: saved prefill time of own engines, from the model's mean time per
    uncached token; `None` for a provider's model. `unpriced_tokens`: cached tokens without a known price.
    """

    tenant: str
    team: str
    project: str
    key: str
    model: str
    read_tokens: int
    written_tokens: int
    saved_pico_usd: int
    write_pico_usd: int
    saved_gpu_ns: int | None
    unpriced_tokens: int

    @property
    def net_pico_usd(self) -> int:
        """Return the saving minus the cost of writes, in pico-USD; below 0 if writes cost more than reads saved."""
        return self.saved_pico_usd - self.write_pico_usd


def _uncached(leaves: tuple[Leaf, ...]) -> tuple[tuple[Leaf, Leaf], ...]:
    """Return pairs of a kind of cached input and its uncached kind."""
    return tuple((leaf, leaf_of("input", KINDS[leaf].medium) or "input_text") for leaf in leaves)


_READS: Final = _uncached(CACHE_READ_LEAVES)
_WRITES: Final = _uncached(CACHE_WRITE_LEAVES)


def cache_savings(
    groups: Iterable[UsageGroup], book: PriceBook, prefill_ns_per_token: Mapping[str, float]
) -> list[CacheSaving]:
    """Return the savings by payer and model, largest first. `prefill_ns_per_token`: of self-hosted models."""
    found: dict[tuple[str, str, str, str, str], list[int]] = {}
    for group in groups:
        if group.is_kept_answer:
            continue
        sums = found.setdefault((group.tenant, group.team, group.project, group.key, group.model), [0] * 5)
        for place, value in enumerate(_of_group(group, book)):
            sums[place] += value
    savings = [
        CacheSaving(*name, read, written, saved, paid, _gpu_ns(read, name[4], prefill_ns_per_token), unpriced)
        for name, (read, written, saved, paid, unpriced) in found.items()
        if read or written
    ]
    return sorted(savings, key=lambda one: (-one.net_pico_usd, one.tenant, one.team, one.project, one.key, one.model))


def _of_group(group: UsageGroup, book: PriceBook) -> tuple[int, int, int, int, int]:
    card = card_for(group, book)
    read = written = saved = paid = unpriced = 0
    for leaf, plain in _READS:
        count = group.tokens[LEAVES.index(leaf)]
        rate = None if card is None else card.rate(leaf, group.input_tokens)
        full = None if card is None else card.rate(plain, group.input_tokens)
        read += count
        if rate is None or full is None:
            unpriced += count
        else:
            saved += count * (full - rate)
    for leaf, plain in _WRITES:
        count = group.tokens[LEAVES.index(leaf)]
        rate = None if card is None else card.rate(leaf, group.input_tokens)
        full = None if card is None else card.rate(plain, group.input_tokens)
        written += count
        if rate is not None and full is not None:
            paid += count * (rate - full)
    return read, written, saved, paid, unpriced


def _gpu_ns(read: int, model: str, prefill_ns_per_token: Mapping[str, float]) -> int | None:
    rate = prefill_ns_per_token.get(model)
    return None if rate is None else round(read * rate)
